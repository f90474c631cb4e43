package lab

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/test/auditlog"
)

// WritesSince counts what the worker and the watcher wrote to the API server, Leases left out. The log tells of the
// last of it after auditlog.Delay.
func WritesSince(began time.Time) (n int, err error) {
	log := os.Getenv(auditlog.Variable)
	if log == "" {
		return 0, fmt.Errorf("%s is missing from the environment", auditlog.Variable)
	}
	writes := []string{"create", "update", "patch", "delete", "deletecollection"}
	err = auditlog.ReadFiles(log, func(e auditlog.Event) {
		if strings.HasPrefix(e.User.Username, "system:serviceaccount:lockkeeper-system:") && !e.At.Before(began) &&
			slices.Contains(writes, e.Verb) && e.ObjectRef.Resource != "leases" && !e.DryRun() {
			n++
		}
	})
	return n, err
}
