package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Everything on the wire is mutually authenticated, although it is loopback: whoever may talk to the API server or to a
// kubelet can run programs as the lab's user, who may be root.

// certificateLife is far longer than any lab.
const certificateLife = 365 * 24 * time.Hour

// authority signs the certificates of one lab.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// pair is a certificate and its key in PEM.
type pair struct{ cert, key []byte }

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate(pkix.Name{CommonName: name})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// server issues a certificate for a server on loopback, also under the given names and addresses.
func (a *authority) server(name string, dns []string, ips ...net.IP) (pair, error) {
	template := certificate(pkix.Name{CommonName: name})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = append([]string{"localhost"}, dns...)
	template.IPAddresses = append([]net.IP{net.IPv4(127, 0, 0, 1)}, ips...)
	return a.sign(template)
}

// client issues a certificate for a user of Kubernetes.
func (a *authority) client(user string, groups ...string) (pair, error) {
	template := certificate(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(template)
}

func (a *authority) sign(template *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	keyPEM, err := encodeKey(key)
	return pair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: keyPEM}, err
}

func certificate(subject pkix.Name) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife),
	}
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// Files of the lab's folder pki.
const (
	caFile                = "ca.crt"
	apiserverName         = "apiserver"
	kubeletName           = "kubelet"
	kubeletClientName     = "apiserver-kubelet-client"
	clusterAPIName        = "cluster-api"
	serviceAccountKeyFile = "service-account.key"
)

// users are those who get a kubeconfig. The controller manager acts for all its controllers, and one process acts for
// all kubelets, so both may do everything; real kubelets may not, which no part of lockkeeper depends on.
var users = []struct {
	file, name string
	groups     []string
}{
	{"admin", "admin", []string{"system:masters"}},
	{"controller-manager", "system:kube-controller-manager", []string{"system:masters"}},
	{"scheduler", "system:kube-scheduler", nil},
	{"kubelets", "system:lab-kubelets", []string{"system:masters"}},
}

// writePKI makes all keys, certificates and kubeconfigs in dir, for an API server at the given URL and at the address
// of its Service. It does nothing if they are there already.
func writePKI(dir, url string, service net.IP) error {
	if _, err := os.Stat(filepath.Join(dir, caFile)); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	ca, err := newAuthority("lab")
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	addPair := func(name string, p pair, err error) error {
		files[name+".crt"], files[name+".key"] = p.cert, p.key
		return err
	}
	dns := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	server, err := ca.server("kube-apiserver", dns, service)
	errs := []error{addPair(apiserverName, server, err)}
	kubelet, err := ca.server("kubelet", nil)
	errs = append(errs, addPair(kubeletName, kubelet, err))
	clusterAPI, err := ca.server("cluster-api", nil)
	errs = append(errs, addPair(clusterAPIName, clusterAPI, err))
	client, err := ca.client("kube-apiserver")
	errs = append(errs, addPair(kubeletClientName, client, err))
	for _, u := range users {
		p, err := ca.client(u.name, u.groups...)
		if err != nil {
			return err
		}
		if files[u.file+".kubeconfig"], err = kubeconfig(url, ca.pem, p); err != nil {
			return err
		}
	}
	serviceAccountKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	files[serviceAccountKeyFile], err = encodeKey(serviceAccountKey)
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	// Last, since it says that the others are complete.
	if err := os.WriteFile(filepath.Join(dir, caFile), ca.pem, 0o600); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	return nil
}
