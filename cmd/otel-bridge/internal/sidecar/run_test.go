package sidecar

import (
	"context"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
)

// logged is a log that tests can wait on.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
	news chan struct{}
}

func newLogged() *logged { return &logged{news: make(chan struct{}, 1)} }

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.news <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *logged) await(t *testing.T, word string) {
	t.Helper()
	for {
		l.mu.Lock()
		found := strings.Contains(l.text.String(), word)
		l.mu.Unlock()
		if found {
			return
		}
		select {
		case <-l.news:
		case <-t.Context().Done():
			t.Fatalf("never logged %q", word)
		}
	}
}

// startRun runs the sidecar until stop is called.
func startRun(t *testing.T, l *logged, overrides map[string]string, root string) (stop func()) {
	t.Helper()
	var list []config.Override
	for k, v := range overrides {
		list = append(list, config.Override{Key: k, Value: v, From: "test"})
	}
	cfg, err := config.Load(config.Options{Overrides: list, LookupEnv: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Sources = []config.Source{{DSH: config.DSHSource{Path: root, StartAt: "beginning"}}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, cfg, RunOptions{Logger: func(*config.Config) *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }})
	}()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestDisabledBuildsNothingOfThePipeline(t *testing.T) {
	dir := t.TempDir()
	ledgerFile(t, dir, "a", "")
	before := files(t, dir)
	l := newLogged()
	stop := startRun(t, l, map[string]string{
		"outbox.dir": filepath.Join(dir, "data"), "admin.listen": "127.0.0.1:0", "exporter.endpoint": "http://127.0.0.1:9",
	}, dir)
	l.await(t, "DISABLED")

	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, part := range []string{"fsnotify", "otel-bridge/telemetry.", "otel-bridge/telemetry/outbox.", "otel-bridge/telemetry/otlp.", "sidecar.(*keeper)", "sidecar.(*watcher)"} {
		if strings.Contains(string(stacks), part) {
			t.Errorf("a goroutine of %s exists", part)
		}
	}
	if after := files(t, dir); strings.Join(before, " ") != strings.Join(after, " ") {
		t.Errorf("files appeared: %v", after)
	}
	stop()
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		out = append(out, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRunLeavesNothingBehindButItsData(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	l := newLogged()
	stop := startRun(t, l, map[string]string{
		"mode": "FULL", "outbox.dir": filepath.Join(dir, "data"), "admin.listen": "127.0.0.1:0", "exporter.endpoint": "http://127.0.0.1:9",
		"shutdown_timeout": "1s",
	}, root)
	l.await(t, "msg=started")
	stop()                                // goleak looks at the rest
	l.await(t, "msg=stopped remaining=2") // that it has started, and that it has stopped
	if st, err := os.Stat(filepath.Join(dir, "data")); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("data directory %v %v", st, err)
	}
}

func TestBusyHealthAddressFailsAtOnceAndSaysWhatToDo(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dir := t.TempDir()
	cfg, err := config.Load(config.Options{LookupEnv: func(string) (string, bool) { return "", false }, Overrides: []config.Override{
		{Key: "admin.listen", Value: ln.Addr().String()}, {Key: "outbox.dir", Value: filepath.Join(dir, "data")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	err = Run(context.Background(), cfg, RunOptions{Logger: func(*config.Config) *slog.Logger { return slog.New(slog.DiscardHandler) }})
	if err == nil || !strings.Contains(err.Error(), "admin.listen") {
		t.Errorf("error %v", err)
	}
}

func TestTheLastOfTwoReloadsCounts(t *testing.T) {
	first, last := new(config.Config), new(config.Config)
	next := []*config.Config{first, last}
	g := &generation{reload: make(chan *config.Config, 1), opts: RunOptions{Load: func() (*config.Config, error) {
		cfg := next[0]
		next = next[1:]
		return cfg, nil
	}}}
	for range 2 {
		if err := g.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-g.reload; got != last {
		t.Error("the configuration of the first reload goes on")
	}
}
