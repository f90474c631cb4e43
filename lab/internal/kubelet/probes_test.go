package kubelet

import (
	"fmt"
	"strings"
	"testing"
)

func TestBeginningIsKept(t *testing.T) {
	var said beginning
	for range 3 {
		if n, err := fmt.Fprint(&said, strings.Repeat("x", 300)); n != 300 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if got, want := string(said), strings.Repeat("x", 500); got != want {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
}
