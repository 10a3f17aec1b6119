// Package identity checks what a node and its group are called in a configuration: names that can stand in lists and commands, and
// addresses of which each names another node, whatever the spelling.
//
//	names       letters, digits, - _ . % |
//	addresses   host:port; LOCALHOST:1, localhost.:1, 127.0.0.1:01 and, for who listens on 0.0.0.0:1, 127.0.0.1:1 are one
//
// What this package does not do: it resolves no names. Two names of one host are two hosts to it.
package identity
