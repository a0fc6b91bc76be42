package corpus

import (
	"strings"
	"testing"
)

// The mixture: 30 % base64 and 0.1 % secrets, by size.
func TestTheMixtureIsWhatItSays(t *testing.T) {
	g := New(5)
	var size, blobs, secrets int
	for size < 40<<20 {
		text := g.Text(Mixed)
		size += len(text)
		if i := strings.Index(text, ";base64,"); i >= 0 {
			blobs += len(text) - i
		}
		secrets += g.planted
		g.planted = 0
	}
	t.Logf("%.1f %% base64, %.3f %% secrets", 100*float64(blobs)/float64(size), 100*float64(secrets)/float64(size))
	if share := float64(blobs) / float64(size); share < 0.28 || share > 0.32 {
		t.Errorf("%.3f of it is base64", share)
	}
	if share := float64(secrets) / float64(size); share < 0.0009 || share > 0.0011 {
		t.Errorf("%.5f of it is secrets", share)
	}
}
