package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	socketName = "control.sock"
	// pointerName is the file that names the socket when its own path would be
	// too long for the operating system.
	pointerName = "control.path"
	// maxSocketPath is the shortest sun_path in use (darwin's 104 with the
	// final zero byte).
	maxSocketPath = 103
)

// ErrNotRunning says that no bridge answers at a data directory.
var ErrNotRunning = errors.New("no sidecar runs on this data directory, or its mode is DISABLED")

// ListenControl opens the control socket of a data directory, whose lock the
// caller holds: a socket that is there already was left by a process that is
// gone.
func ListenControl(dataDir string, h http.Handler) (*Server, error) {
	path := filepath.Join(dataDir, socketName)
	pointer := filepath.Join(dataDir, pointerName)
	if err := remove(pointer); err != nil {
		return nil, err
	}
	if len(path) > maxSocketPath {
		dir, err := shortDir(dataDir)
		if err != nil {
			return nil, err
		}
		path = filepath.Join(dir, socketName)
		if err := os.WriteFile(pointer, []byte(path+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	if err := remove(path); err != nil {
		return nil, err
	}
	ln, err := listenPrivate(path)
	if err != nil {
		return nil, err
	}
	return Serve(ln, h), nil
}

// shortDir makes a private directory with a short name for the socket.
func shortDir(dataDir string) (string, error) {
	abs, err := filepath.Abs(dataDir)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(abs))
	dir := filepath.Join(os.TempDir(), "otel-bridge-"+hex.EncodeToString(sum[:8]))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	// Somebody else may have made it first: only a directory of our own that
	// nobody else can enter will do.
	st, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if !st.IsDir() || st.Mode().Perm() != 0o700 || !ownedByUs(st) {
		return "", fmt.Errorf("%s is not a private directory of this user; remove it, or use a shorter data directory", dir)
	}
	return dir, nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ControlClient speaks to the bridge that runs on a data directory. It returns
// ErrNotRunning when none does. The host part of request URLs is not used.
func ControlClient(dataDir string) (*http.Client, error) {
	path := filepath.Join(dataDir, socketName)
	if text, err := os.ReadFile(filepath.Join(dataDir, pointerName)); err == nil {
		path = strings.TrimSpace(string(text))
	}
	if _, err := os.Stat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, ErrNotRunning
		}
		return nil, err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := dial(ctx, "", "")
	if err != nil {
		if isRefused(err) {
			return nil, ErrNotRunning
		}
		return nil, err
	}
	if err := conn.Close(); err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}, nil
}
