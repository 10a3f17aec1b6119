// Package servicetest runs whole services in tests: in the test's own process, or as a child of the test binary that can be killed.
//
//	Serve      telemetry, build, actors, as service.Main does, but several in one process
//	Command    the test binary as the service, with Settings as its flags; Fork starts it, Run waits for its end
//	Dial       a plain gRPC client; FreeAddr, Record: where it listens, what it logs
//	EveryMethod, Typed, PrintsTheExample, SelfSigned    what every service answers, prints and trusts
//
// What this package does not do: it knows no service.
package servicetest
