// Package sleep waits for a time, or until its context ends. Who waits for an event waits for that instead: package watermark.
package sleep
