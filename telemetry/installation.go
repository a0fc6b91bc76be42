package telemetry

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Installation is what a data directory knows of itself, beyond its records: it
// stands in the file installation.json (mode 0600), which is made at first use
// and belongs to the outbox beside it.
type Installation struct {
	// ID names the installation. It is random and says nothing.
	ID string
	// Key is the secret of this installation, 32 bytes: digests in cursors and
	// tokens for session ids are made with it.
	Key []byte
	// Mode is the last mode that capture was started with.
	Mode Mode
	// Epoch counts how often consent has grown. A session whose cursor is of an
	// earlier epoch goes on from now, unless configuration says to catch up.
	Epoch uint32
	// Policy is the redaction policy of the last start, or "".
	Policy string
	// Signer signs summaries. It is made at the first start.
	Signer ed25519.PrivateKey

	dir string
}

// InstallationFile is the name of the file in a data directory.
const InstallationFile = "installation.json"

const installationVersion = 1

type installationJSON struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Key     string `json:"key"`
	Mode    string `json:"mode"`
	Epoch   uint32 `json:"epoch"`
	Policy  string `json:"policy,omitempty"`
	// Signer is the seed of the signing key. Installations from before it have none.
	Signer string `json:"signer,omitempty"`
}

// OpenInstallation reads the installation of a data directory, or makes a new
// one, directory included. The caller holds the directory's lock.
func OpenInstallation(dir string) (*Installation, error) {
	in, err := ReadInstallation(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return newInstallation(dir)
	}
	if err != nil || in.Signer != nil {
		return in, err
	}
	in.Signer = newSigner()
	return in, in.save()
}

// ReadInstallation reads the installation of a data directory and changes
// nothing, so that it needs no lock: one from before there were signing keys has
// no Signer. Where there is no installation the error is fs.ErrNotExist.
func ReadInstallation(dir string) (*Installation, error) {
	path := filepath.Join(dir, InstallationFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var in installationJSON
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, fmt.Errorf("%s is broken: restore it, or start with another data directory", path)
	}
	if in.Version != installationVersion {
		return nil, fmt.Errorf("%s has version %d and this program knows version %d", path, in.Version, installationVersion)
	}
	key, err := hex.DecodeString(in.Key)
	if err != nil || len(key) != 32 || in.ID == "" {
		return nil, fmt.Errorf("%s is broken: restore it, or start with another data directory", path)
	}
	mode, err := ParseMode(in.Mode)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	out := &Installation{ID: in.ID, Key: key, Mode: mode, Epoch: in.Epoch, Policy: in.Policy, dir: dir}
	if in.Signer == "" {
		return out, nil
	}
	seed, err := hex.DecodeString(in.Signer)
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("%s is broken: restore it, or start with another data directory", path)
	}
	out.Signer = ed25519.NewKeyFromSeed(seed)
	return out, nil
}

func newSigner() ed25519.PrivateKey {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err) // the system's random numbers never fail
	}
	return key
}

// signer is the key, made now where an installation was put together by hand.
func (in *Installation) signer() ed25519.PrivateKey {
	if len(in.Signer) != ed25519.PrivateKeySize {
		in.Signer = newSigner()
	}
	return in.Signer
}

func newInstallation(dir string) (*Installation, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	in := NewInstallation()
	in.dir = dir
	return in, in.save()
}

// NewInstallation returns an installation that is kept nowhere, for programs
// whose sessions and outbox do not outlive them.
func NewInstallation() *Installation {
	var random [48]byte
	rand.Read(random[:]) // never fails
	return &Installation{ID: hex.EncodeToString(random[:16]), Key: random[16:], Signer: newSigner()}
}

// Start notes the mode and policy that capture starts with, and returns those
// of the last start. Where the mode lets out more than the last one did a new
// epoch begins.
func (in *Installation) Start(mode Mode, policy string) (lastMode Mode, lastPolicy string, err error) {
	lastMode, lastPolicy = in.Mode, in.Policy
	if mode == lastMode && policy == lastPolicy {
		return lastMode, lastPolicy, nil
	}
	if !lastMode.Covers(mode) {
		in.Epoch++
	}
	in.Mode, in.Policy = mode, policy
	return lastMode, lastPolicy, in.save()
}

// save writes the file beside the old one, syncs it, and puts it in its place.
func (in *Installation) save() error {
	if in.dir == "" {
		return nil
	}
	text, err := json.MarshalIndent(installationJSON{
		installationVersion, in.ID, hex.EncodeToString(in.Key), in.Mode.String(), in.Epoch, in.Policy,
		hex.EncodeToString(in.signer().Seed()),
	}, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(in.dir, InstallationFile+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(in.dir, InstallationFile))
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	return syncDir(in.dir)
}
