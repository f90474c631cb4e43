package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/lockkeeper/lockkeeper/lab/internal/autoscaler"
	"github.com/lockkeeper/lockkeeper/lab/internal/fault"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/karpenter"
)

// Client talks to the supervisor of an instance.
type Client struct {
	inst instance.Instance
	http http.Client
}

// NewClient does not connect yet.
func NewClient(inst instance.Instance) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", inst.ControlSocket())
	}
	return &Client{inst: inst, http: http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Status asks how the lab is.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.do(ctx, http.MethodGet, "/status", nil, &s)
}

// Inject makes a fault happen.
func (c *Client) Inject(ctx context.Context, f fault.Fault) error {
	return c.do(ctx, http.MethodPost, "/fault", f, nil)
}

// StartLoad starts the load, on a volume of Longhorn or, without one, on a pool of Ceph.
func (c *Client) StartLoad(ctx context.Context, volume string) error {
	return c.do(ctx, http.MethodPost, "/load/start?volume="+url.QueryEscape(volume), nil, nil)
}

// StopLoad stops the load, and returns when its report is complete.
func (c *Client) StopLoad(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/load/stop", nil, nil)
}

// StartAutoscaler starts the Cluster Autoscaler, and returns when it has looked at the cluster.
func (c *Client) StartAutoscaler(ctx context.Context, o autoscaler.Options) error {
	return c.do(ctx, http.MethodPost, "/autoscaler/start", o, nil)
}

// StopAutoscaler stops it, and returns when it has ended.
func (c *Client) StopAutoscaler(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/autoscaler/stop", nil, nil)
}

// StartKarpenter starts Karpenter, and returns when it works.
func (c *Client) StartKarpenter(ctx context.Context, o karpenter.Options) error {
	return c.do(ctx, http.MethodPost, "/karpenter/start", o, nil)
}

// StopKarpenter stops it, and returns when it has ended.
func (c *Client) StopKarpenter(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/karpenter/stop", nil, nil)
}

// Stop asks the lab to end. It returns before it has.
func (c *Client) Stop(ctx context.Context, keep bool) error {
	return c.do(ctx, http.MethodPost, fmt.Sprintf("/stop?keep=%t", keep), nil, nil)
}

func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://lab"+path, body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if !c.inst.Running() {
			return fmt.Errorf("lab %s is not running (start it with `lab up --name %s`)", c.inst.Name, c.inst.Name)
		}
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(b)))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}
