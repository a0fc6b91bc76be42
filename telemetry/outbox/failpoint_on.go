//go:build failpoints

package outbox

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// OUTBOX_FAILPOINT=name:n kills the process the n-th time that it comes by name.
var (
	failName, failAt = parseFailpoint(os.Getenv("OUTBOX_FAILPOINT"))
	failCount        atomic.Int64
)

func parseFailpoint(s string) (string, int64) {
	if s == "" {
		return "", 0
	}
	i := max(strings.LastIndexByte(s, ':'), 0)
	n, err := strconv.ParseInt(s[i+1:], 10, 64)
	if err != nil || n < 1 {
		panic("OUTBOX_FAILPOINT is not name:n")
	}
	return s[:i], n
}

func failpoint(name string) {
	if name != failName || failCount.Add(1) != failAt {
		return
	}
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {} // until the signal is there
}
