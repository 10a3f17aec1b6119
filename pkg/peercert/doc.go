// Package peercert is the section `tls` of a service's configuration, and checks before a node starts that the other nodes of its
// group will take its certificate: they call the node by its address, and the node calls them and shows the same certificate.
// Everything is read from files; nothing is sent. What a certificate's age says is left out: it is renewed while a node runs.
package peercert
