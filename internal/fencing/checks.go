package fencing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file reads health checks: when they find a node unhealthy, and whether they would fence anybody at all.

// Condition is a condition of a node, as Kubernetes says it.
type Condition struct {
	Type, Status string
	Since        time.Time
}

// Check is a condition for which a health check calls a node unhealthy: it has been so for longer than Timeout.
type Check struct {
	Type, Status string
	Timeout      time.Duration
}

// WithoutCheck are the conditions of a node that no health check selects: plainly not ready, at once.
var WithoutCheck = []Check{{Type: "Ready", Status: "False"}, {Type: "Ready", Status: "Unknown"}}

// Unhealthy tells since when a node meets one of the checks; ok is false when it meets none. next is when it may meet
// one without another word, as long as its conditions stay; zero: never.
func Unhealthy(conditions []Condition, checks []Check, now time.Time) (since, next time.Time, ok bool) {
	for _, check := range checks {
		for _, c := range conditions {
			if c.Type != check.Type || c.Status != check.Status {
				continue
			}
			at := c.Since.Add(check.Timeout)
			switch {
			case !at.After(now) && (!ok || at.Before(since)):
				since, ok = at, true
			case at.After(now) && (next.IsZero() || at.Before(next)):
				next = at
			}
		}
	}
	if ok {
		next = time.Time{}
	}
	return since, next, ok
}

// Patient is a node that may have to be fenced.
type Patient struct {
	// Machine is the node's; the zero Machine: it has none, so that nothing holds it. Holders is how many storage clusters
	// hold it.
	Machine  Machine   `json:"machine"`
	Holders  int       `json:"holders,omitempty"`
	Deleting time.Time `json:"deleting,omitzero"` // since when its deletion is asked for
	// Unhealthy is since when it meets a condition of its health checks; zero: it meets none. Next is when it may meet
	// one as long as its conditions stay; zero: never.
	Unhealthy time.Time `json:"unhealthy,omitzero"`
	Next      time.Time `json:"next,omitzero"`
	Condition string    `json:"condition,omitempty"` // which one it meets: "Ready=Unknown"
	// DisksGo: whoever fences the node takes away the disks that are tied to it, and daemons of it have such disks.
	DisksGo bool `json:"disksGo,omitempty"`
	// Ready, BootID and Found are what Kubernetes says of the node.
	Found  bool   `json:"found,omitempty"`
	Ready  bool   `json:"ready,omitempty"`
	BootID string `json:"bootID,omitempty"`
	UID    string `json:"uid,omitempty"` // of the Node
}

// Meets notes since when the patient is unhealthy if any of the conditions meets a check, or when one may. prefix goes
// before the name of the condition.
func (p *Patient) Meets(conditions []Condition, checks []Check, prefix string, now time.Time) {
	since, next, ok := Unhealthy(conditions, checks, now)
	if !ok {
		if p.Unhealthy.IsZero() && !next.IsZero() && (p.Next.IsZero() || next.Before(p.Next)) {
			p.Next = next
		}
		return
	}
	p.Next = time.Time{}
	if p.Unhealthy.IsZero() || since.Before(p.Unhealthy) {
		p.Unhealthy = since
	}
	for _, c := range conditions {
		if slices.ContainsFunc(checks, func(x Check) bool {
			return x.Type == c.Type && x.Status == c.Status && !c.Since.Add(x.Timeout).After(now)
		}) {
			p.Condition = prefix + c.Type + "=" + c.Status
		}
	}
}

// Why tells why the node is to be fenced, and since when.
func (p Patient) Why() (Why, time.Time) {
	switch {
	case p.Machine.UID != "" && !p.Deleting.IsZero():
		if !p.Unhealthy.IsZero() {
			return WhyUnhealthy, p.Unhealthy
		}
		return WhyDeleting, p.Deleting
	case !p.Unhealthy.IsZero():
		return WhyUnhealthy, p.Unhealthy
	default:
		return WhyRecovered, time.Time{}
	}
}

// Spares tells whether a health check that wants so many Machines to be healthy would fence one of so many. least is
// its minHealthy: a number, or a percentage, which is rounded up; "" is no limit.
func Spares(least string, machines int) (bool, error) {
	if least = strings.TrimSpace(least); least == "" {
		return machines > 0, nil
	}
	number, percent := strings.CutSuffix(least, "%")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		return false, fmt.Errorf("minHealthy %q: allowed are a number and a percentage", least)
	}
	if percent {
		n = (n*machines + 99) / 100
	}
	return machines-1 >= n && machines > 0, nil
}

// Fences tells whether a health check would fence one unhealthy Machine of so many that it counts. limit is its
// maxUnhealthy, or unhealthyLessThanOrEqualTo: a number, a percentage, which is rounded down, or a range, "[1-3]". ""
// is no limit. The error says what is wrong with the limit.
func Fences(limit string, machines int) (bool, error) {
	limit = strings.TrimSpace(limit)
	if limit == "" {
		return machines > 0, nil
	}
	if inner, is := strings.CutPrefix(limit, "["); is {
		low, high, both := strings.Cut(strings.TrimSuffix(inner, "]"), "-")
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if !both || !strings.HasSuffix(limit, "]") || err1 != nil || err2 != nil || from > to {
			return false, fmt.Errorf("limit %q: allowed are a number, a percentage, and a range such as [1-3]", limit)
		}
		return from <= 1 && to >= 1 && machines > 0, nil
	}
	number, percent := strings.CutSuffix(limit, "%")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		return false, fmt.Errorf("limit %q: allowed are a number, a percentage, and a range such as [1-3]", limit)
	}
	if percent {
		n = n * machines / 100
	}
	return n >= 1 && machines > 0, nil
}
