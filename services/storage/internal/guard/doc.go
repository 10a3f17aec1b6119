// Package guard notices that the folder of a running storage is taken away from under it.
//
// A process that has its files open and mapped goes on without a complaint when somebody removes or replaces the folder: what it
// confirms from then on is in no file that anybody finds again. A Guard looks every few seconds, and whenever a name is missing
// that a write needs, whether the folder is there and still holds the lock file that the log has locked. Once it does not, Run
// ends with ErrFolderGone, and every further call by name is refused with it, so that nothing is written into a folder that
// somebody put in its place.
//
// What this package does not do: it does not look at the files of the log one by one, and it does not stop what is on its way
// through files that are open already; the service does, when Run ends.
package guard
