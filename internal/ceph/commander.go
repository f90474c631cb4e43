package ceph

import (
	"context"
	"encoding/json"
	"fmt"
)

// Commander carries one command to the monitors and brings back the answer. Package rados has the real one.
type Commander interface {
	// MonCommand sends command, a JSON object with a "prefix". It returns the answer, the status line meant for people,
	// and an error that carries Ceph's return code, a negative errno, in interface{ ErrorCode() int }. Some commands say
	// "no" by a code and explain themselves in output, so that output counts even with an error.
	MonCommand(ctx context.Context, command []byte) (output []byte, status string, err error)
}

// Client sends commands over a Commander. It keeps no state, and is as safe for concurrent use as its Commander.
type Client struct {
	Commander Commander
}

// run sends command and decodes the JSON answer into answer, unless that is nil. Its errors are *CommandError for what
// Ceph refused or did not answer, and plain ones for an answer that makes no sense.
func (c Client) run(ctx context.Context, command command, answer any) error {
	output, err := c.send(ctx, command)
	if err != nil || answer == nil {
		return err
	}
	return decode(command, output, answer)
}

func (c Client) send(ctx context.Context, command command) ([]byte, error) {
	request, err := json.Marshal(command)
	if err != nil {
		return nil, fmt.Errorf("encode ceph command %q: %w", command.name(), err)
	}
	output, status, err := c.Commander.MonCommand(ctx, request)
	if err != nil {
		return output, newCommandError(command.name(), status, err)
	}
	return output, nil
}

func decode(command command, output []byte, answer any) error {
	if err := json.Unmarshal(output, answer); err != nil {
		return fmt.Errorf("ceph %s: the answer (%d bytes) is not what was expected: %w", command.name(), len(output), err)
	}
	return nil
}
