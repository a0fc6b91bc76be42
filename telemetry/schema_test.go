package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// schema is what the page for machines uses of JSON Schema.
type schema struct {
	Ref                  string             `json:"$ref"`
	Defs                 map[string]*schema `json:"$defs"`
	Type                 string             `json:"type"`
	Const                any                `json:"const"`
	Enum                 []any              `json:"enum"`
	Pattern              string             `json:"pattern"`
	Minimum              *float64           `json:"minimum"`
	MinItems             int                `json:"minItems"`
	MaxItems             *int               `json:"maxItems"`
	Items                *schema            `json:"items"`
	Required             []string           `json:"required"`
	AdditionalProperties *bool              `json:"additionalProperties"`
	Properties           map[string]*schema `json:"properties"`
	Schema               string             `json:"$schema"`
	Title                string             `json:"title"`
	Description          string             `json:"description"`
}

func (root *schema) check(s *schema, v any, at string) error {
	if s.Ref != "" {
		def := root.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
		if def == nil {
			return fmt.Errorf("%s: no definition %s", at, s.Ref)
		}
		return root.check(def, v, at)
	}
	if s.Const != nil && v != s.Const || s.Enum != nil && !slices.Contains(s.Enum, v) {
		return fmt.Errorf("%s: %v is not allowed", at, v)
	}
	switch v := v.(type) {
	case string:
		if s.Type != "" && s.Type != "string" || s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v) {
			return fmt.Errorf("%s: %q", at, v)
		}
	case float64:
		if s.Type != "" && (s.Type != "integer" || v != math.Trunc(v)) || s.Minimum != nil && v < *s.Minimum {
			return fmt.Errorf("%s: %v", at, v)
		}
	case []any:
		if s.Type != "array" || len(v) < s.MinItems || s.MaxItems != nil && len(v) > *s.MaxItems {
			return fmt.Errorf("%s: an array of %d", at, len(v))
		}
		for i, m := range v {
			if s.Items != nil {
				if err := root.check(s.Items, m, fmt.Sprintf("%s[%d]", at, i)); err != nil {
					return err
				}
			}
		}
	case map[string]any:
		if s.Type != "object" {
			return fmt.Errorf("%s: an object", at)
		}
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				return fmt.Errorf("%s: no %s", at, name)
			}
		}
		for name, m := range v {
			p := s.Properties[name]
			if p == nil {
				if s.AdditionalProperties != nil && !*s.AdditionalProperties {
					return fmt.Errorf("%s: %s is not described", at, name)
				}
				continue
			}
			if err := root.check(p, m, at+"."+name); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("%s: %T", at, v)
	}
	return nil
}

// readSchema reads docs/records.schema.json.
func readSchema(t *testing.T) *schema {
	t.Helper()
	text, err := os.ReadFile("../docs/records.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.DisallowUnknownFields()
	root := new(schema)
	if err := dec.Decode(root); err != nil {
		t.Fatal(err)
	}
	return root
}

// Every kind of ops record has a body of the form that docs/records.schema.json
// gives, and the schema describes no kind that there is not.
func TestBodiesOfOpsRecordsFollowTheSchema(t *testing.T) {
	root := readSchema(t)
	ctx := context.Background()
	o := &sealing{modelOutbox: newModelOutbox(), states: map[outbox.ID]outbox.State{}}
	in := NewInstallation()
	open := func(src Source, opts SessionOptions) *Session {
		return testCapture(t, o, func(c *Config) {
			c.Attest, c.Installation = true, in
			c.Resource = testResource
		}).Session(src, opts)
	}
	c := testCapture(t, o, func(c *Config) { c.Attest, c.Installation, c.Resource = true, in, testResource })
	trail := c.Trail()
	steps := []error{
		trail.Started(ctx), trail.Stopped(ctx, "stop"), trail.Changed(ctx, FeedbackOnly, "sha256:other"),
		trail.Action(ctx, "send", 2, []string{"a", "b"}), trail.Action(ctx, "discard", 0, nil), trail.Action(ctx, "retry", 1500, make([]string, 1500)),
		trail.Action(ctx, "drop", 1, []string{"a"}),
	}
	// An attempt, a divergence, a hold, a rewind; an end.
	src := ledger("s", append(turn(1)[:6], `step/end {"turn":1,"step":1}`, `turn/end {"turn":1,"reason":{"kind":"error"}}`)...)
	s := open(src, SessionOptions{})
	pull(t, s)
	steps = append(steps, s.Hold(ctx), s.Accept(ctx), s.Rewind(ctx, 2), s.lost(ctx, []EventKey{{s.Key(), 0, 1}}))
	pull(t, s)
	_, err := s.goBack(ctx, nil, "note")
	steps = append(steps, err)
	pull(t, s)
	steps = append(steps, s.Idle(ctx), s.Ended(ctx))
	s.Close()
	src.events[7].Time++
	s = open(src, SessionOptions{})
	pull(t, s)
	src.append("unheard/of {}")
	_, err = s.Pull(ctx, 0)
	var held *HeldError
	if !errors.As(err, &held) {
		t.Fatal(err)
	}
	s.Close()
	later := open(ledger("later", turn(1)...), SessionOptions{FromNow: true})
	pull(t, later)
	later.Close()
	older := open(ledger("g", turn(1)...), SessionOptions{})
	pull(t, older)
	older.Close()
	newer := ledger("g", append(turn(1), turn(2)...)...)
	newer.header.Version = 1
	next := open(newer, SessionOptions{})
	pull(t, next)
	next.Close()
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	_, drafts := o.drafts(t)
	for _, d := range drafts {
		if err := c.NewSealer(o).Seal(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for i, r := range o.records(t) {
		if r.Channel != ChannelOps || IsDraft(o.entries[i].Key) {
			continue
		}
		seen[r.Op] = true
		kind := root.Properties[r.Op]
		if kind == nil {
			t.Errorf("%s is not described", r.Op)
			continue
		}
		var body any
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		if err := root.check(kind, body, r.Op); err != nil {
			t.Errorf("%v in %s", err, r.Body)
		}
	}
	for kind := range root.Properties {
		if !seen[kind] {
			t.Errorf("no record %s was seen", kind)
		}
	}
}

var testResource = NewResource("")
