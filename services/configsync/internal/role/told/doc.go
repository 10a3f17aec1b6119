// Package told keeps on the disk the highest reign that a peer has told this node of. Who told was answered that nothing of a lower
// reign changes anything here any more, and relies on it: so the answer goes out only when this is saved, and holds over restarts.
// FORMAT.md has the file.
package told
