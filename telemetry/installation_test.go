package telemetry_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/telemetry"
)

// An audit reads the installation of a running sidecar.
func TestReadingAnInstallationChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if _, err := telemetry.ReadInstallation(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("where there is none: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the directory: %v", err)
	}
	made, err := telemetry.OpenInstallation(dir)
	if err != nil {
		t.Fatal(err)
	}
	read, err := telemetry.ReadInstallation(dir)
	if err != nil {
		t.Fatal(err)
	}
	if read.ID != made.ID || !bytes.Equal(read.Key, made.Key) || !read.Signer.Equal(made.Signer) {
		t.Error("another installation is read than was made")
	}

	// One from before there were signing keys.
	path := filepath.Join(dir, telemetry.InstallationFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	from := strings.Index(string(text), `"signer"`)
	old := strings.TrimRight(string(text[:from]), ", \n\t") + "}"
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	if read, err = telemetry.ReadInstallation(dir); err != nil || read.Signer != nil {
		t.Fatalf("signer %d bytes, %v", len(read.Signer), err)
	}
	if text, err = os.ReadFile(path); err != nil || string(text) != old {
		t.Errorf("reading changed the file: %v", err)
	}
	opened, err := telemetry.OpenInstallation(dir)
	if err != nil || opened.Signer == nil || opened.ID != made.ID {
		t.Fatalf("opening gave no key: %v", err)
	}
	again, err := telemetry.OpenInstallation(dir)
	if err != nil || !again.Signer.Equal(opened.Signer) {
		t.Errorf("the key was not kept: %v", err)
	}
}
