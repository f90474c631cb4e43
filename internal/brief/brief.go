// Package brief keeps lists short enough to be read.
package brief

import (
	"fmt"
	"strings"
)

// List names up to so many and counts the rest: "a, b and 7 more".
func List(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
