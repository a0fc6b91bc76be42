package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// machine describes where figures come from, without names.
func machine() string {
	model, memory := "unknown CPU", ""
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		model = field(string(text), "model name")
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kb int64
		if _, err := fmt.Sscan(field(string(text), "MemTotal"), &kb); err == nil {
			memory = fmt.Sprintf(", %.0f GiB of memory", float64(kb)/(1<<20))
		}
	}
	load := ""
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		if one, _, ok := strings.Cut(string(text), " "); ok {
			load = ", load " + one + " at the start"
		}
	}
	return fmt.Sprintf("%d core(s) of %s%s, %s/%s, %s%s", runtime.NumCPU(), model, memory, runtime.GOOS, runtime.GOARCH, runtime.Version(), load)
}

// field is the value of the first "name : value" line.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
