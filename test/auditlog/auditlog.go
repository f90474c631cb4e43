// Package auditlog reads the audit log of a lab's API server: who asked for what, when it was answered, and how.
package auditlog

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Variable names the log in the environment of a lab.
const Variable = "LAB_AUDIT_LOG"

// Delay is how long a request may be missing from the log after it was answered: the API server writes in batches.
const Delay = time.Second

// longest is that of one line, in bytes.
const longest = 1 << 22

// Event is a request that was answered, as far as anybody asks here.
type Event struct {
	Received    time.Time `json:"requestReceivedTimestamp"` // to the microsecond
	At          time.Time `json:"stageTimestamp"`           // when it was answered
	User        struct{ Username string }
	UserAgent   string
	Verb        string
	URI         string `json:"requestURI"`
	ObjectRef   Object
	Response    Response `json:"responseStatus"`
	Annotations map[string]string
}

// Object is what was asked about. It is empty where that is none, as with /version.
type Object struct{ APIGroup, Resource, Subresource, Namespace, Name string }

// Response is the answer: an HTTP status, and what is said of an error.
type Response struct {
	Code    int
	Message string
}

// DryRun tells whether nothing was to change.
func (e Event) DryRun() bool { return strings.Contains(e.URI, "dryRun") }

// Read hands over what a log has, in its order. A line that is only half written is left out.
func Read(log io.Reader, take func(Event)) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			take(e)
		}
	}
	return lines.Err()
}

// ReadFiles reads the log at path, and what the API server moved out of it when it had grown.
func ReadFiles(path string, take func(Event)) error {
	files, err := filepath.Glob(strings.TrimSuffix(path, filepath.Ext(path)) + "*")
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := readFile(file, take); err != nil {
			return err
		}
	}
	return nil
}

func readFile(path string, take func(Event)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return Read(f, take)
}
