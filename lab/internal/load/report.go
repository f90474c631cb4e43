package load

import (
	"encoding/json"
	"os"
	"time"
)

// Report is how a load went.
type Report struct {
	Writes       int `json:"writes"` // acknowledged
	Reads        int `json:"reads"`  // answered
	FailedWrites int `json:"failed_writes"`
	FailedReads  int `json:"failed_reads"`
	LostWrites   int `json:"lost_writes"`
	// LongestStall is the time of the slowest single operation, and when and what it was.
	LongestStall   int64     `json:"longest_stall_ms"`
	LongestStallAt time.Time `json:"longest_stall_at,omitzero"`
	LongestStallOf string    `json:"longest_stall_of,omitempty"`
	Seconds        int       `json:"seconds"`
	// Errors are the first few, word by word.
	Errors []string `json:"errors,omitempty"`
	// Running turns false with the last report.
	Running bool `json:"running"`
}

const maxErrors = 10

func (r *Report) note(err error) {
	if len(r.Errors) < maxErrors {
		r.Errors = append(r.Errors, time.Now().UTC().Format(time.RFC3339Nano)+" "+err.Error())
	}
}

func (r *Report) stall(op operation, now time.Time) {
	if op.since.IsZero() {
		return
	}
	if ms := now.Sub(op.since).Milliseconds(); ms > r.LongestStall {
		r.LongestStall, r.LongestStallAt, r.LongestStallOf = ms, op.since.UTC(), op.what
	}
}

// WriteFile replaces a file as a whole, so that a reader never sees half a report.
func (r Report) WriteFile(path string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// ReadReport reads the file that a running or finished load has written.
func ReadReport(path string) (Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Report{}, err
	}
	var r Report
	return r, json.Unmarshal(b, &r)
}
