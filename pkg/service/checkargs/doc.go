// Package checkargs reads the command line of `check [-json] [DIR]`, which every service has for a folder that no process uses.
//
// What this package does not do: it looks at no folder.
package checkargs
