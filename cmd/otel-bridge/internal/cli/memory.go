package cli

import "runtime/debug"

// softMemory is where the garbage collector starts to work harder. What is
// live at a time is about 40 MiB: batches on their way in and out, the rules of
// redaction, cursors. Without a limit the collector lets as much again lie
// about, which is more than the 128 MiB that are promised when lines are long.
const softMemory = 88 << 20

// limitMemory sets the soft limit, unless GOMEMLIMIT does.
func (a *app) limitMemory() {
	if v, ok := a.lookup("GOMEMLIMIT"); !ok || v == "" {
		debug.SetMemoryLimit(softMemory)
	}
}

// startQuietly lets the heap grow while the program starts, and returns what ends
// that: what is made then, the rules above all, stays, and the collector would look
// for garbage at every 4 MiB of it.
func startQuietly() (started func()) {
	percent := debug.SetGCPercent(400)
	return func() { debug.SetGCPercent(percent) }
}
