package outbox

import "context"

const formatVersion = 1

// Outbox is a durable log of entries and cursors in one directory.
type Outbox struct{}

// Lease is a set of entries handed out for delivery.
type Lease struct{}

// View is a directory opened for reading only.
type View struct{}

func Open(dir string, o Options) (*Outbox, error)                               { return nil, ErrClosed }
func (o *Outbox) Close() error                                                  { return ErrClosed }
func (o *Outbox) Commit(ctx context.Context, b *Batch) (ID, error)              { return 0, ErrClosed }
func (o *Outbox) WaitRoom(ctx context.Context) error                            { return ErrClosed }
func (o *Outbox) Cursor(key string) ([]byte, bool)                              { return nil, false }
func (o *Outbox) Cursors(prefix string, fn func(key string, value []byte) bool) {}
func (o *Outbox) Lease(ctx context.Context, lim Limits) (*Lease, error)         { return nil, ErrClosed }
func (o *Outbox) TryLease(lim Limits) (*Lease, error)                           { return nil, ErrClosed }
func (o *Outbox) Stats() Stats                                                  { return Stats{} }
func (o *Outbox) Recovery() Recovery                                            { return Recovery{} }
func (o *Outbox) Scan(fn func(Info) bool) error                                 { return ErrClosed }
func (o *Outbox) Get(id ID, fn func(Info)) error                                { return ErrClosed }
func (o *Outbox) Hold(match func(Info) bool) (int, error)                       { return 0, ErrClosed }
func (o *Outbox) Send(ids ...ID) error                                          { return ErrClosed }
func (o *Outbox) SendHeld(match func(Info) bool) (int, error)                   { return 0, ErrClosed }
func (o *Outbox) Discard(ids ...ID) error                                       { return ErrClosed }
func (o *Outbox) DiscardHeld(match func(Info) bool) (int, error)                { return 0, ErrClosed }
func (o *Outbox) Retry(ids ...ID) error                                         { return ErrClosed }
func (o *Outbox) RetryAll(match func(Info) bool) (int, error)                   { return 0, ErrClosed }
func (o *Outbox) Drop(ids ...ID) error                                          { return ErrClosed }
func (o *Outbox) Damaged() []Damage                                             { return nil }
func (o *Outbox) Recovered(d ...Damage) error                                   { return ErrClosed }
func (l *Lease) Entries() []Leased                                              { return nil }
func (l *Lease) Ack(ids ...ID) error                                            { return ErrClosed }
func (l *Lease) Quarantine(q ...Refused) error                                  { return ErrClosed }
func (l *Lease) Return(ids ...ID) error                                         { return ErrClosed }
func (l *Lease) Close() error                                                   { return ErrClosed }
func OpenReadOnly(dir string, o Options) (*View, error)                         { return nil, ErrClosed }
func (v *View) Stats() Stats                                                    { return Stats{} }
func (v *View) Recovery() Recovery                                              { return Recovery{} }
func (v *View) Scan(fn func(Info) bool) error                                   { return ErrClosed }
func (v *View) Get(id ID, fn func(Info)) error                                  { return ErrClosed }
func (v *View) Cursor(key string) ([]byte, bool)                                { return nil, false }
func (v *View) Cursors(prefix string, fn func(key string, value []byte) bool)   {}
func (v *View) Damaged() []Damage                                               { return nil }
func (v *View) Close() error                                                    { return ErrClosed }
