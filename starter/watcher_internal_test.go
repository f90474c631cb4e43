package starter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
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
				err := standAgain(ctx, testr.New(t), func() error {
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
		require.NoError(t, standAgain(ctx, testr.New(t), func() error { return errors.New(leaseLost) }))
		require.Equal(t, renewEvery/2, time.Since(began))
	})
}
