package ceph

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// OKToStop asks whether these OSDs may all stop now without any placement group becoming unavailable. No OSDs: yes.
//
// The manager answers from the placement groups' state as it knows it, which lags behind the OSD map by seconds: the
// answer counts only with knowledge that was proved to be fresh. "No" and "not known yet" are answers; an error means
// that nobody answered.
func (c Client) OKToStop(ctx context.Context, osds []int) (storage.Answer, error) {
	if len(osds) == 0 {
		return storage.Answer{OK: true}, nil
	}
	command := okToStopCommand{Prefix: "osd ok-to-stop", Format: "json"}
	for _, id := range osds {
		command.IDs = append(command.IDs, strconv.Itoa(id))
	}
	output, err := c.send(ctx, command)
	switch {
	case IsBusy(err), IsAgain(err):
		return storage.Answer{Reason: refusal(output, err)}, nil
	case err != nil:
		return storage.Answer{}, err
	}
	var report okToStopReport
	if err := decode(command, output, &report); err != nil {
		return storage.Answer{}, err
	}
	// Ceph names the OSDs that its yes is about. They must be ours: a yes to another question is no answer.
	if report.OK && !report.covers(osds) {
		return storage.Answer{}, fmt.Errorf("ceph osd ok-to-stop %v: the answer is about %v", osds, report.OSDs)
	}
	if !report.OK {
		return storage.Answer{Reason: report.reason()}, nil
	}
	return storage.Answer{OK: true}, nil
}

// okToStopReport is the answer to "osd ok-to-stop".
type okToStopReport struct {
	OK       bool     `json:"ok_to_stop"`
	OSDs     []int    `json:"osds"`
	NumNotOK int      `json:"num_not_ok_pgs"`
	Inactive []string `json:"bad_become_inactive"`
	Already  []string `json:"bad_already_inactive"`
}

func (r okToStopReport) covers(osds []int) bool {
	named := make(map[int]bool, len(r.OSDs))
	for _, id := range r.OSDs {
		named[id] = true
	}
	for _, id := range osds {
		if !named[id] {
			return false
		}
	}
	return true
}

func (r okToStopReport) reason() string {
	switch {
	case len(r.Already) > 0:
		return fmt.Sprintf("%d PGs are unavailable already, %s among them", len(r.Already), r.Already[0])
	case len(r.Inactive) > 0:
		return fmt.Sprintf("%d PGs would become unavailable, %s among them", len(r.Inactive), r.Inactive[0])
	default:
		return fmt.Sprintf("%d PGs would become unavailable", r.NumNotOK)
	}
}

// refusal puts a "no" in words: from the report if there is one, from the error otherwise.
func refusal(output []byte, err error) string {
	var report okToStopReport
	if json.Unmarshal(output, &report) == nil && report.NumNotOK > 0 {
		return report.reason()
	}
	return err.Error()
}
