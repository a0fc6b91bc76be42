package telemetry

import "go.opentelemetry.io/otel/attribute"

// Resource is who a record speaks for. It does not change, and is shared by
// the records that have it: a receiver of records may compare the pointers
// that one Decoder hands out.
type Resource struct {
	schemaURL string
	attrs     []attribute.KeyValue
	enc       []byte // the stored form, made once
}

// NewResource returns a resource with the given attributes; of two with one
// key the later counts. The schema URL may be empty.
func NewResource(schemaURL string, attrs ...attribute.KeyValue) *Resource {
	set := attribute.NewSet(attrs...)
	r := &Resource{schemaURL: schemaURL, attrs: set.ToSlice()}
	r.enc = appendString(nil, r.schemaURL)
	r.enc = appendAttributes(r.enc, r.attrs)
	return r
}

// Attributes returns the attributes, sorted by key. They are not to be changed.
func (r *Resource) Attributes() []attribute.KeyValue {
	if r == nil {
		return nil
	}
	return r.attrs
}

// SchemaURL returns the schema that the attributes follow, or "".
func (r *Resource) SchemaURL() string {
	if r == nil {
		return ""
	}
	return r.schemaURL
}

// Scope is the instrumentation scope of a record.
type Scope struct {
	Name, Version string
	// SchemaURL and Attributes are set for records of ChannelLog only.
	SchemaURL  string
	Attributes attribute.Set
}
