package ballast

import "runtime"

// size of the ballast, bytes: several times what a small service holds on its heap.
const size = 32 << 20

// Hold has the collector count the ballast until release is called.
func Hold() (release func()) {
	b := make([]byte, size)
	return func() { runtime.KeepAlive(b) }
}
