package nodes

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// Join is errors.Join that keeps a single error as it is.
func Join(errs ...error) error {
	var one error
	n := 0
	for _, e := range errs {
		if e != nil {
			one = e
			n++
		}
	}
	if n <= 1 {
		return one
	}
	return errors.Join(errs...)
}

// Explain turns an error of a call into one of errdefs that names the node.
func Explain(err error, addr string) error {
	err = grpcx.FromStatus(err)
	var many interface{ Unwrap() []error } // several field errors: their fields say more than an address
	e := errdefs.As(err)
	if e == nil || errors.As(err, &many) || e.Meta["address"] != "" {
		return err
	}
	return e.With("address", addr)
}

// Stranger reports whether it is not the service that is looked for that answers at an address, or, of several joined errors, at all of
// them. Another address may be right.
func Stranger(err error) bool {
	var many interface{ Unwrap() []error }
	if !errors.As(err, &many) {
		return err != nil && errdefs.ClassOf(err) == errdefs.Unimplemented
	}
	return !slices.ContainsFunc(many.Unwrap(), func(err error) bool { return !Stranger(err) })
}

// Backoff returns the pause before try n+1: 50 ms doubling to 2 s, of which a random half is taken off.
func Backoff(n int) time.Duration {
	const first, most = 50 * time.Millisecond, 2 * time.Second
	d := most
	if n < 6 {
		d = min(first<<n, most)
	}
	return d/2 + rand.N(d/2)
}
