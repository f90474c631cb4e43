package starter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// TestStandsForTheLeaseAgain: a watcher that lost the Lease with its API server stands for it until it gets it, however
// long the API server is away.
func TestStandsForTheLeaseAgain(t *testing.T) {
	lost, away := errors.New("watch: "+leaseLost), errors.New("set up the watcher: failed to get server groups")
	for name, c := range map[string]struct {
		each []error // of each attempt; after them it runs until it is told to end
		want error
		runs int
	}{
		"it runs":                          {nil, nil, 1},
		"it cannot be set up at all":       {[]error{away}, away, 1},
		"the Lease is lost":                {[]error{lost}, nil, 2},
		"the API server is away meanwhile": {[]error{lost, away, away, lost, away}, nil, 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				runs := 0
				stood := false
				err := standAgain(ctx, testr.New(t), func(again bool) error {
					require.Equal(t, stood, again)
					stood = true
					if runs++; runs <= len(c.each) {
						return c.each[runs-1]
					}
					<-ctx.Done()
					return nil
				})
				require.Equal(t, c.want, err)
				require.Equal(t, c.runs, runs)
			})
		})
	}
}

// TestEndsWhileItWaitsToStandAgain: nobody who is told to end waits for the Lease.
func TestEndsWhileItWaitsToStandAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), renewEvery/2)
		defer stop()
		began := time.Now()
		require.NoError(t, standAgain(ctx, testr.New(t), func(bool) error { return errors.New(leaseLost) }))
		require.Equal(t, renewEvery/2, time.Since(began))
	})
}

// TestIsHealthyWhileTheAPIServerIsAway: the kubelet does not start a watcher anew that has lost its API server. One
// that never had one says so at once.
func TestIsHealthyWhileTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	t.Run("refuses", func(t *testing.T) {
		t.Parallel()
		isHealthyWithout(t, freeAddress(t), func() {})
	})
	t.Run("hangs", func(t *testing.T) {
		t.Parallel()
		hangs, err := net.Listen("tcp", "127.0.0.1:0") // and never answers
		require.NoError(t, err)
		isHealthyWithout(t, hangs.Addr().String(), func() { _ = hangs.Close() })
	})
}

// isHealthyWithout tries a watcher without the API server at an address, whose questions end with end.
func isHealthyWithout(t *testing.T, address string, end func()) {
	t.Helper()
	away := &rest.Config{Host: "http://" + address}
	opts := Options{
		LeaderElection: true, LeaderElectionNamespace: "lockkeeper-system",
		HealthAddress: freeAddress(t), Log: logr.Discard(),
	}
	require.ErrorContains(t, runOnce(t.Context(), away, nil, opts, false), "set up the watcher: ")

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runOnce(ctx, away, nil, opts, true) }()
	healthy := func(context.Context) (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("the watcher has ended before it was told to: %w", err)
		default:
		}
		r, err := http.Get("http://" + opts.HealthAddress + "/healthz")
		if err != nil {
			return false, nil
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK, nil
	}
	require.NoError(t, wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, healthy))
	stop()
	end()
	<-ended
}

// freeAddress is one on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
