package instance

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestAwaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		still := Awaiting("etcd", func(s string) { said = append(said, s) })
		for range 40 {
			time.Sleep(time.Second)
			still(errors.New("no leader"))
		}
		time.Sleep(10 * time.Second)
		still(nil)
		want := []string{
			"etcd is not ready after 15s: no leader", "etcd is not ready after 30s: no leader",
			"etcd is not ready after 50s",
		}
		if !slices.Equal(said, want) {
			t.Errorf("%q, want %q", said, want)
		}
	})
}
