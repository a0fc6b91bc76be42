package outbox

import (
	"fmt"
	"os"
)

// View is an outbox directory opened for reading only: without the lock, while another
// process may be writing, and whatever is damaged. It shows the moment of its opening.
type View struct{ o *Outbox }

// OpenReadOnly opens dir for looking at it. Nothing in it is changed.
func OpenReadOnly(dir string, opts Options) (*View, error) {
	o := newOutbox(dir, opts)
	o.fileFlag = os.O_RDONLY
	if err := o.load(true); err != nil {
		o.closeFiles()
		return nil, err
	}
	return &View{o: o}, nil
}

// Stats of the directory.
func (v *View) Stats() Stats { return v.o.Stats() }

// Recovery says what an Open would find.
func (v *View) Recovery() Recovery { return v.o.Recovery() }

// Scan is [Outbox.Scan].
func (v *View) Scan(fn func(Info) bool) error { return v.wrap(v.o.Scan(fn)) }

// ScanStates is [Outbox.ScanStates].
func (v *View) ScanStates(fn func(Info) bool, states ...State) error {
	return v.wrap(v.o.ScanStates(fn, states...))
}

// Get is [Outbox.Get].
func (v *View) Get(id ID, fn func(Info)) error { return v.wrap(v.o.Get(id, fn)) }

// Cursor is [Outbox.Cursor].
func (v *View) Cursor(key string) ([]byte, bool) { return v.o.Cursor(key) }

// Cursors is [Outbox.Cursors].
func (v *View) Cursors(prefix string, fn func(key string, value []byte) bool) {
	v.o.Cursors(prefix, fn)
}

// Damaged is [Outbox.Damaged], as far as it was found: payloads are verified by Scan.
func (v *View) Damaged() []Damage { return v.o.Damaged() }

// Close closes the files.
func (v *View) Close() error {
	v.o.mu.Lock()
	v.o.closed = true
	v.o.mu.Unlock()
	v.o.closeFiles()
	return nil
}

func (v *View) wrap(err error) error {
	if err != nil {
		return fmt.Errorf("outbox: view of %s: %w", v.o.dir, err)
	}
	return nil
}
