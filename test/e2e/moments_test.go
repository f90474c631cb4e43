package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/interceptor"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lockkeeper/lockkeeper/cmd/lockkeeper-worker/adapters"
	"github.com/lockkeeper/lockkeeper/test/turns"
	"github.com/lockkeeper/lockkeeper/worker"
)

// momentsEnv makes this test's binary a worker: the real one, with the real adapters, which says before and after each
// call what it is about to do, or has done, to whoever listens on the socket that the variable names, and waits for
// leave to go on. So a test can count the calls of a drain, and have something die between any two of them.
// lockkeeper-worker itself knows nothing of it.
const momentsEnv = "LOCKKEEPER_TEST_MOMENTS"

func TestMain(m *testing.M) {
	if socket := os.Getenv(momentsEnv); socket != "" {
		if err := runWorker(socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(askEnv) != "" {
		if err := answerQuestions(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	code := m.Run()
	if err := turns.TellLeftOut(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// moment is the beginning or the end of one attempt of an activity.
type moment struct {
	Workflow string
	Activity string
	Attempt  int32
	Ended    bool
}

func (m moment) String() string {
	when := "before"
	if m.Ended {
		when = "after"
	}
	who, _, _ := strings.Cut(m.Workflow, "/")
	return fmt.Sprintf("%s %s of the %s", when, m.Activity, who)
}

func runWorker(socket string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(),
		nil).ClientConfig()
	if err != nil {
		return err
	}
	world, err := adapters.New(cfg)
	if err != nil {
		return err
	}
	defer world.Close()
	options, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return err
	}
	temporal, err := client.DialContext(ctx, options)
	for err != nil && ctx.Err() == nil { // it may be the one that died just now
		time.Sleep(200 * time.Millisecond)
		temporal, err = client.DialContext(ctx, options)
	}
	if err != nil {
		return err
	}
	defer temporal.Close()
	w := worker.New(temporal, world.Adapters, &teller{socket: socket})
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	<-ctx.Done()
	return nil
}

// teller tells of each moment.
type teller struct {
	interceptor.WorkerInterceptorBase
	socket string
}

func (t *teller) InterceptActivity(
	_ context.Context, next interceptor.ActivityInboundInterceptor,
) interceptor.ActivityInboundInterceptor {
	a := &tellerOfOne{teller: t}
	a.Next = next
	return a
}

type tellerOfOne struct {
	interceptor.ActivityInboundInterceptorBase
	teller *teller
}

func (a *tellerOfOne) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	info := activity.GetInfo(ctx)
	m := moment{Workflow: info.WorkflowExecution.ID, Activity: info.ActivityType.Name, Attempt: info.Attempt}
	a.teller.tell(m)
	result, err := a.Next.ExecuteActivity(ctx, in)
	m.Ended = true
	a.teller.tell(m)
	return result, err
}

func (t *teller) tell(m moment) {
	body, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://test/moment",
		bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", t.socket)
	}
	response, err := (&http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}).Do(request)
	if err != nil {
		fmt.Fprintln(os.Stderr, "nobody listens to moments:", err)
		return
	}
	response.Body.Close()
}

// listener hears of every moment before it passes.
type listener struct {
	server *http.Server
	hear   func(moment)
}

func listen(socket string, hear func(moment)) (*listener, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	heard := &listener{hear: hear, server: &http.Server{ReadHeaderTimeout: 5 * time.Second}}
	heard.server.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m moment
		if err := json.NewDecoder(r.Body).Decode(&m); err == nil {
			heard.hear(m)
		}
	})
	go func() {
		if err := heard.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}()
	return heard, nil
}
