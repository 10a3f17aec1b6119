//go:build !linux

package link

import "errors"

const haveSendfile = false

func (f *fileStep) try(uintptr) bool {
	f.err = errNoSendfile
	return true
}

// setCongestion is Linux's alone.
func setCongestion(uintptr, string) error {
	return errors.ErrUnsupported
}
