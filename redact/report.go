package redact

import (
	"slices"
	"sort"
)

// Finding says that a rule matched at a path. Paths name members by their
// keys as they stand in the output, so that a redacted key shows as its
// marker; JSON inside a string appears as ".(json)".
type Finding struct {
	Rule  string `json:"rule"`
	Path  string `json:"path"`
	Count int    `json:"count"`
}

// Report says what a call has redacted. It holds no content. A report is
// never nil when the call succeeded and must not be modified.
type Report struct {
	Counts    map[string]int // rule id -> replacements; nil when there were none
	Findings  []Finding      // the same by path, sorted by path, then rule; beyond 256 without path
	Withhold  string         // the first rule with action "withhold" that matched; "" for none
	Exhausted int            // values replaced because a limit was reached
}

func (r *Report) add(rule, path string) {
	if r.Counts == nil {
		r.Counts = map[string]int{}
	}
	r.Counts[rule]++
	at := r.find(rule, path)
	if at < 0 && len(r.Findings) >= maxFindings {
		path = ""
		at = r.find(rule, path)
	}
	if at < 0 {
		r.Findings = append(r.Findings, Finding{rule, path, 1})
		return
	}
	r.Findings[at].Count++
}

func (r *Report) find(rule, path string) int {
	return slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Rule == rule && f.Path == path })
}

// maxFindings bounds the list of paths; counts by rule stay exact. An entry
// without a path, one for each rule, then stands for all the paths beyond.
const maxFindings = 256

func (r *Report) sort() {
	sort.Slice(r.Findings, func(i, j int) bool {
		if r.Findings[i].Path != r.Findings[j].Path {
			return r.Findings[i].Path < r.Findings[j].Path
		}
		return r.Findings[i].Rule < r.Findings[j].Rule
	})
}
