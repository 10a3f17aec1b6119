package service

import "github.com/tandemlog/tandem/pkg/service/size"

// Size is a number of bytes, written as 512, 32KiB, 4MiB, 1GiB or 2TiB.
type Size = size.Bytes
