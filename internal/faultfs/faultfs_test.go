package faultfs_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/faultfs"
)

func TestACrashForgetsWhatWasNotSynced(t *testing.T) {
	fs := faultfs.New()
	f, err := fs.OpenFile("/d/a", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	write := func(s string, off int64) {
		if _, err := f.WriteAt([]byte(s), off); err != nil {
			t.Fatal(err)
		}
	}
	write("synced", 0)
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := fs.Crash(faultfs.KeepNothing, nil).Names(); len(got) != 0 {
		t.Fatalf("a name survives without SyncDir: %v", got)
	}
	if err := fs.SyncDir("/d"); err != nil {
		t.Fatal(err)
	}
	write("later", 6)
	if got := string(fs.Crash(faultfs.KeepNothing, nil).Bytes("/d/a")); got != "synced" {
		t.Fatalf("%q", got)
	}
	if got := string(fs.Crash(faultfs.KeepAll, nil).Bytes("/d/a")); got != "syncedlater" {
		t.Fatalf("%q", got)
	}
	seen := map[string]bool{}
	for i := range uint64(20) {
		seen[string(fs.Crash(faultfs.KeepSome, rand.New(rand.NewPCG(i, 0))).Bytes("/d/a"))] = true
	}
	if len(seen) != 2 {
		t.Fatalf("%v", seen)
	}
}

func TestAFailedSyncDropsWhatItCoveredAndAFullDiskTakesWhatFits(t *testing.T) {
	fs := faultfs.New()
	f, _ := fs.OpenFile("/d/a", os.O_RDWR|os.O_CREATE, 0o600)
	if err := fs.SyncDir("/d"); err != nil {
		t.Fatal(err)
	}
	bad := errors.New("bad")
	fs.Fault(func(op faultfs.Op) error {
		if op.Kind == "sync" {
			return bad
		}
		return nil
	})
	if _, err := f.WriteAt([]byte("gone"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); !errors.Is(err, bad) {
		t.Fatal(err)
	}
	fs.Fault(nil)
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := fs.Crash(faultfs.KeepAll, nil).Bytes("/d/a"); len(got) != 0 {
		t.Fatalf("%q", got)
	}
	fs.SetBudget(6)
	if n, err := f.WriteAt([]byte("0123456789"), 0); n != 6 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(n, err)
	}
}
