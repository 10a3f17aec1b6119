// Package errdefs gives every error of Tandem a class and a reason.
//
// The class says what a caller can do about it and becomes the gRPC code (pkg/grpcx translates both ways). The reason is
// one UPPER_SNAKE_CASE word that a program may branch on and an operator may search for; metadata names the field,
// offset or file, and Remedy says what to do. Sentinels are made once with New and refined per call:
//
//	var ErrGap = errdefs.New(errdefs.OutOfRange, "OFFSET_GAP", "offset does not follow the log's end")
//	return ErrGap.With("offset", off).With("end", end)
//
// errors.Is(err, ErrGap) holds for every refinement: class and reason are compared, nothing else.
//
// What this package does not do: it knows no gRPC, logs nothing and has no stack traces.
package errdefs
