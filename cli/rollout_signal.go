package cli

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
)

// Approve says that the canary of a rollout is fine.
func (c *Command) Approve(ctx context.Context, job string) error {
	id, err := taker(job, jobs.SignalApprove)
	if err != nil {
		return &ExitError{ExitUsage, err}
	}
	r, err := lookUp[Rollout](ctx, c.Temporal, id)
	switch s := r.Status; {
	case err != nil || r.State != Running || s == nil: // that is for the signal to say
	case s.OSDSet.Kind == activities.OSDSetWaiting && s.Consent:
		return fmt.Errorf("nothing to approve: it was approved already; %s", r.Describe(c.Now()))
	case s.OSDSet.Kind == activities.OSDSetWaiting:
	case s.Canary.Template == "" || s.Canary.Template != s.Template:
		return fmt.Errorf("nothing to approve: no canary of this template has gone yet; %s", r.Describe(c.Now()))
	case s.Canary.Judged:
		return fmt.Errorf("nothing to approve: the canary %s was judged already; %s", s.Canary.OSD, r.Describe(c.Now()))
	}
	return c.signal(ctx, id, jobs.SignalApprove, "")
}

// Skip says that a rollout is not to replace an OSD, nor to wait for it.
func (c *Command) Skip(ctx context.Context, job, osd string) error {
	id, err := taker(job, jobs.SignalSkip)
	if err != nil {
		return &ExitError{ExitUsage, err}
	}
	if osd, err = osdNamed(osd); err != nil {
		return &ExitError{ExitUsage, err}
	}
	if err := c.checkOSD(ctx, id, osd); err != nil {
		return err
	}
	return c.signal(ctx, id, jobs.SignalSkip, osd)
}

var osdNumber = regexp.MustCompile(`^(osd\.)?(0|[1-9][0-9]{0,8})$`)

// osdNamed is an OSD as a rollout calls it: "osd.3", "host:/dev/sdb", or the name of its Deployment.
func osdNamed(osd string) (string, error) {
	if m := osdNumber.FindStringSubmatch(osd); m != nil {
		return "osd." + m[2], nil
	}
	host, device, isKey := strings.Cut(osd, ":")
	if isKey && len(validation.IsValidLabelValue(host)) == 0 && host != "" && strings.HasPrefix(device, "/") ||
		!isKey && len(validation.IsDNS1123Subdomain(osd)) == 0 {
		return osd, nil
	}
	return "", wrong("OSD", osd, "must be osd.3, HOST:DEVICE as in spec.storage, or the name of a Deployment")
}
