package lease

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
)

// This file keeps the lease small on its way: hundreds of jobs may wait for it, and Temporal refuses a payload of 2 MiB. No claim
// can be left out, since there is no other record of it. But claims repeat each other's words and their own names.

// plainClaims is up to how many claims the state is written in plain JSON.
const plainClaims = 64

type plainState State

// packedState is the JSON of a state with more claims.
type packedState struct {
	Token int64 `json:"token"`
	// Packed is the plain JSON, compressed.
	Packed []byte `json:"packed,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (s State) MarshalJSON() ([]byte, error) {
	plain, err := json.Marshal(plainState(s))
	if err != nil || len(s.Holders)+len(s.Queue) <= plainClaims {
		return plain, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(plain); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(packedState{s.Token, b.Bytes()})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *State) UnmarshalJSON(data []byte) error {
	var p packedState
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	if len(p.Packed) > 0 {
		z, err := gzip.NewReader(bytes.NewReader(p.Packed))
		if err != nil {
			return err
		}
		if data, err = io.ReadAll(z); err != nil {
			return err
		}
	}
	var plain plainState
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	*s = State(plain)
	return nil
}
