package kube

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
)

func TestLateServer(t *testing.T) {
	t.Parallel()
	wanted := map[string]int64{"osd": 4, "proved": 7}
	knows := func(osd, proved int64) ServerSight {
		return ServerSight{Server: "a:6443", Knows: map[string]int64{"osd": osd, "proved": proved}}
	}
	silent := ServerSight{Server: "b:6443", Err: errors.New("connection refused")}
	const older, long = "still decides deletions by an older PodDisruptionBudget ", time.Hour
	for name, c := range map[string]struct {
		sights []ServerSight
		more   bool // there may be others
		age    time.Duration
		says   string
	}{
		"nothing is guarded":       {[]ServerSight{{Server: "a:6443"}}, false, 0, ""},
		"all know":                 {[]ServerSight{knows(4, 7), knows(4, 7)}, false, 0, ""},
		"one knows more":           {[]ServerSight{knows(5, 7)}, false, 0, ""},
		"one is late":              {[]ServerSight{knows(4, 7), knows(3, 7)}, false, long, "a:6443 " + older + "osd"},
		"one is late for a moment": {[]ServerSight{knows(3, 7)}, false, stuckAfter, older + "osd"},
		"one is late for long":     {[]ServerSight{knows(3, 7)}, false, stuckAfter + 1, older + "osd: restart it"},
		"late with the other":      {[]ServerSight{knows(4, 6)}, false, long, older + "proved"},
		"one has read none":        {[]ServerSight{knows(4, 7), {Server: "c:6443"}}, false, long, "c:6443 " + older},
		"one is silent":            {[]ServerSight{knows(4, 7), silent}, false, awaitsServer - 1, "b:6443 does not say"},
		"one is silent for long":   {[]ServerSight{knows(4, 7), silent}, false, awaitsServer, ""},
		"another is late":          {[]ServerSight{silent, knows(4, 6)}, false, awaitsServer, older + "proved"},
		"there may be others":      {[]ServerSight{knows(4, 7)}, true, unlisted - 1, "whether there are more API servers"},
		"they had their time":      {[]ServerSight{knows(4, 7)}, true, unlisted, ""},
		"nobody answers":           {[]ServerSight{silent}, true, awaitsServer - 1, "connection refused"},
	} {
		says := lateServer(c.sights, !c.more, wanted, c.age)
		if c.says == "" {
			require.Empty(t, says, name)
		}
		require.Contains(t, says, c.says, name)
	}
}

// TestAskingServers: each API server that is announced is asked by itself, under the name that all of them have.
func TestAskingServers(t *testing.T) {
	t.Parallel()
	slice := discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"},
	}
	said := func(generation string) string {
		return fmt.Sprintf(`299 - "Validation failed for ValidatingAdmissionPolicy '%s' with binding 'any-name': osd %s"`,
			GuardOfServers, generation)
	}
	announced := true
	start := func(warnings ...string) *httptest.Server {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.Method == http.MethodGet && announced:
				_ = json.NewEncoder(w).Encode(slice)
			case r.Method == http.MethodPatch && r.URL.Query().Get("dryRun") == metav1.DryRunAll:
				for _, text := range warnings {
					w.Header().Add("Warning", text)
				}
				_, _ = w.Write([]byte(`{"kind": "PodDisruptionBudget", "apiVersion": "policy/v1"}`))
			default:
				w.WriteHeader(http.StatusForbidden)
			}
		}))
		t.Cleanup(s.Close)
		return s
	}
	first, second, bare := start(said("4"), `299 - "something else"`), start(said("3")), start()
	gone := start(said("4"))
	gone.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: first.Certificate().Raw})
	ask := func(s *httptest.Server) ([]ServerSight, bool) {
		servers, err := newAPIServers(&rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
		require.NoError(t, err)
		servers.within = time.Minute // on a busy machine a handshake alone may take half a second
		return servers.Ask(t.Context(), "rook-ceph", "osd")
	}

	sights, all := ask(bare)
	require.True(t, all)
	require.Equal(t, []ServerSight{{Server: bare.URL, Knows: map[string]int64{}}}, sights, "nothing is guarded")

	sights, all = ask(first)
	require.False(t, all, "none is announced")
	require.Equal(t, []ServerSight{{Server: first.URL, Knows: map[string]int64{"osd": 4}}}, sights)

	for _, s := range []*httptest.Server{first, second, gone} {
		host, port, err := net.SplitHostPort(s.Listener.Addr().String())
		require.NoError(t, err)
		n, err := strconv.Atoi(port)
		require.NoError(t, err)
		number := int32(n) //nolint:gosec // a port
		slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{host}}}
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Port: &number})
	}
	sights, all = ask(first)
	require.True(t, all)
	require.Equal(t, ServerSight{Server: first.URL, Knows: map[string]int64{"osd": 4}}, sights[3], "its own")
	got := map[string]string{}
	for _, s := range sights[:3] {
		got[s.Server] = fmt.Sprint(s.Knows["osd"], s.Err == nil)
	}
	require.Equal(t, map[string]string{
		first.Listener.Addr().String(): "4 true", second.Listener.Addr().String(): "3 true",
		gone.Listener.Addr().String(): "0 false",
	}, got)

	announced = false
	_, all = ask(first)
	require.False(t, all, "it may not be read")
}

// someServers are API servers that do not say whether there are others.
type someServers []ServerSight

func (s someServers) Ask(context.Context, string, string) ([]ServerSight, bool) { return s, false }

// TestWaitsForUnlistedServers for as long as it takes, unless the call has to end before.
func TestWaitsForUnlistedServers(t *testing.T) {
	t.Parallel()
	p := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "ceph"}}
	closed := budget.Spec{MinAvailable: budget.Everything}
	open := budget.Spec{MinAvailable: budget.Everything, Key: "zone", Except: []string{"x"}}
	guarding := markedBudget(p).of(p, closed)
	guarding.Generation = 7
	for name, c := range map[string]struct {
		knows  int64
		within time.Duration
		after  time.Duration
		late   string
	}{
		"they had their time":    {7, time.Minute, unlisted, ""},
		"the call ends before":   {7, answersWithin + unlisted/2, unlisted / 2, "whether there are more API servers"},
		"the call is over":       {7, answersWithin / 2, 0, "whether there are more API servers"},
		"one of them stays late": {6, time.Minute, asksServers, "an older PodDisruptionBudget"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := &Cluster{servers: someServers{{Server: "its own", Knows: map[string]int64{guarding.Name: c.knows}}}}
				ctx, stop := context.WithTimeout(t.Context(), c.within)
				defer stop()
				began := time.Now()
				opens := budget.Specs{Daemons: open, Unproved: &open}
				late := cluster.late(ctx, p, []policyv1.PodDisruptionBudget{*guarding}, opens)
				require.Equal(t, c.after, time.Since(began))
				if c.late == "" {
					require.Empty(t, late)
				} else {
					require.Contains(t, late, c.late)
				}
			})
		})
	}
}
