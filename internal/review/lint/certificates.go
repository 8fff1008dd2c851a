package lint

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/util/keyutil"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// These rules are about certificates in Secrets, and the servers that have them.

// checkBadCertificate looks for pairs of a certificate and its key that no server can use.
func checkBadCertificate(s *subject, r *reporter) {
	for _, m := range s.byKind[kinds.Secret] {
		if _, isSet := m.value(corev1.TLSCertKey); !isSet || m.isTombstone {
			continue
		}
		if key, why := m.whyBad(s.previousOf(m)); why != "" {
			r.field(m, []string{m.dataField(key), key}, "%s %s", key, why)
		}
	}
}

// whyBad returns the reason why no server can use the certificate of a Secret, and the key of the value to change; ""
// if servers can, or if a controller or a person may still replace the values.
func (m *manifest) whyBad(old *manifest) (key, why string) {
	for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		value, _ := m.value(key)
		if why := whyNotPEM(value, old != nil && old.isPEM(key)); why != "" {
			return key, why
		}
	}
	chain, now := m.certificates(), time.Now()
	switch {
	case len(chain) == 0 && m.isPEM(corev1.TLSCertKey):
		return corev1.TLSCertKey, "has no certificate, but another block of PEM: write the file with the certificate"
	case len(chain) == 0:
		return "", ""
	case !m.isPair() && len(chain) > 1 && chain[1].CheckSignatureFrom(chain[0]) == nil:
		return corev1.TLSCertKey, "begins with the certificate of an issuer, to which tls.key does not belong: put " +
			"the certificate of the server first"
	case !m.isPair():
		return corev1.TLSPrivateKeyKey, "is not the key of the certificate in tls.crt, so no server can use them: " +
			"replace both at once"
	case now.After(chain[0].NotAfter):
		return corev1.TLSCertKey, "expired on " + chain[0].NotAfter.Format(time.DateOnly) +
			", so clients refuse it: renew it"
	case now.Before(chain[0].NotBefore):
		return corev1.TLSCertKey, "is not valid before " + chain[0].NotBefore.Format(time.DateOnly) +
			", so clients refuse it: issue it anew"
	case old == nil || len(chain) > 1:
		return "", ""
	}
	if before := old.certificates(); len(before) > 1 && chain[0].CheckSignatureFrom(before[1]) == nil &&
		before[1].CheckSignatureFrom(before[1]) != nil { // clients have the root
		return corev1.TLSCertKey, "no longer has the certificate of its issuer, as in the previous payload, so " +
			"clients do not trust it: append it"
	}
	return "", ""
}

// minValidity is the time for which a certificate of a new payload must be valid: updates take some days.
const minValidity = 7 * 24 * time.Hour

// whyShort returns the reason why a changed certificate of a Secret is soon of no use; "" if it is of use for longer.
func (m *manifest) whyShort() string {
	chain := m.certificates()
	if len(chain) == 0 || time.Now().After(chain[0].NotAfter) || time.Until(chain[0].NotAfter) > minValidity {
		return ""
	}
	return "ends on " + chain[0].NotAfter.Format(time.DateOnly) + ", and then clients refuse it: issue it for longer"
}

// beginPEM begins each block of PEM.
const beginPEM = "-----BEGIN "

// whyNotPEM returns the reason why no program can read a value as PEM; "" if programs can, or if it never was PEM.
func whyNotPEM(value string, wasPEM bool) string {
	block, _ := pem.Decode([]byte(value))
	inner, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
	switch {
	case block != nil && strings.Contains(block.Type+block.Headers["Proc-Type"], "ENCRYPTED"):
		return "needs a passphrase, which nothing enters: store the key without one"
	case block != nil:
		return ""
	case strings.HasPrefix(string(inner), beginPEM):
		return "is base64 of base64: write the text in stringData, or encode it once"
	case strings.Contains(value, beginPEM):
		return "is not valid PEM: write the lines of the file unchanged, as a block that begins with |"
	case wasPEM:
		return "is not PEM, as it was in the previous payload: write the file unchanged"
	}
	return ""
}

// isPEM reports whether a value of a Secret is PEM.
func (m *manifest) isPEM(key string) bool {
	value, _ := m.value(key)
	return strings.HasPrefix(value, beginPEM)
}

// certificates returns the certificates of a Secret.
func (m *manifest) certificates() []*x509.Certificate {
	text, _ := m.value(corev1.TLSCertKey)
	return parseCertificates(text)
}

func parseCertificates(text string) (found []*x509.Certificate) {
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			found = append(found, certificate)
		}
	}
	return found
}

// isPair reports whether the key of a Secret belongs to the first certificate, or is not written yet.
func (m *manifest) isPair() bool {
	certificate, _ := m.value(corev1.TLSCertKey)
	key, _ := m.value(corev1.TLSPrivateKeyKey)
	_, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	return err == nil || !strings.Contains(key, beginPEM)
}

// checkUntrustedCertificate looks for servers with certificates that their clients refuse: browsers with the hosts of
// an Ingress, and the API server with a Service.
func checkUntrustedCertificate(s *subject, r *reporter) {
	each(s, kinds.Ingress, func(m *manifest, ingress *networkingv1.Ingress) {
		for i, entry := range ingress.Spec.TLS {
			secret := s.present(kinds.NewID(kinds.Secret, m.id.Namespace, entry.SecretName), m)
			last := ""
			for j, host := range entry.Hosts {
				if why := whyRefused(secret, host, nil); why != "" && why != last {
					last = why
					r.field(m, []string{"spec", "tls", strconv.Itoa(i), "hosts", strconv.Itoa(j)},
						"clients refuse tls.crt of %s (%s:%d), because the %s: issue it for the host", secret.id,
						secret.Path, secret.Line, why)
				}
			}
		}
	})
	for _, m := range s.normal {
		for _, reference := range m.references {
			if path := reference.Path; reference.To.GroupKind() == kinds.Service && len(path) > 1 &&
				path[len(path)-2] == "service" && m.groupKind() != kinds.Ingress {
				s.checkBundle(m, append(slices.Clone(path[:len(path)-2]), "caBundle"), reference.To, r)
			}
		}
	}
}

// present returns the manifest of an object on a cluster of another one; nil if there is none.
func (s *subject) present(id kinds.ID, by *manifest) *manifest {
	return s.in(s.index, id, by)
}

// in returns the manifest of a payload that creates an object on a cluster of another one; nil if there is none.
func (s *subject) in(ix *index, id kinds.ID, by *manifest) *manifest {
	for _, m := range ix.byID[id] {
		if !m.isTombstone && s.shareCluster(m, by) {
			return m
		}
	}
	return nil
}

// whyRefused returns the reason why clients that trust some authorities refuse the certificate of a Secret; "" if they
// do not, or if there is no certificate. Without authorities it looks only at the name and the usage.
func whyRefused(secret *manifest, host string, authorities *x509.CertPool) string {
	if secret == nil || !secret.isPair() || len(secret.certificates()) == 0 {
		return ""
	}
	chain, others := secret.certificates(), x509.NewCertPool()
	for _, issuer := range chain {
		others.AddCert(issuer)
	}
	if authorities == nil {
		authorities = others
	}
	why := ""
	// An authority may be newer than its certificates.
	for _, moment := range []time.Time{time.Now(), chain[0].NotBefore} {
		_, err := chain[0].Verify(x509.VerifyOptions{
			DNSName: host, Roots: authorities, Intermediates: others, CurrentTime: moment,
		})
		if err == nil {
			return ""
		}
		why = strings.TrimPrefix(err.Error(), "x509: ")
	}
	return why
}

// checkBundle compares the authorities by which the API server trusts a Service with the certificates that the pods of
// the Service mount. It ignores authorities that a controller injects, or that a
// program of the payload may write.
func (s *subject) checkBundle(m *manifest, field []string, id kinds.ID, r *reporter) {
	encoded, _ := fieldAt(m.Object().Object, field).(string)
	bundle, _ := base64.StdEncoding.DecodeString(encoded)
	if strings.TrimSpace(string(bundle)) == "" || s.isInjected(m) {
		return
	}
	const effect = "so the API server can't call "
	authorities, trusted, old := x509.NewCertPool(), parseCertificates(string(bundle)), s.previousOf(m)
	for _, authority := range trusted {
		authorities.AddCert(authority)
	}
	switch {
	case len(trusted) == 0 && old != nil && fieldAt(old.Object().Object, field) == encoded: // others replace it
	case len(trusted) == 0:
		r.field(m, field, "caBundle has no certificate in PEM, "+effect+"%s", id)
	case !slices.ContainsFunc(trusted, func(c *x509.Certificate) bool { return time.Now().Before(c.NotAfter) }):
		r.field(m, field, "caBundle expired on %s, "+effect+"%s: renew it",
			trusted[0].NotAfter.Format(time.DateOnly), id)
	default:
		if secret, why := s.whyUntrusted(id, m, authorities); why != "" {
			if strings.Contains(why, " is valid for ") {
				r.field(m, field, "tls.crt of %s (%s:%d) has another name, "+effect+"%s (%s): issue it for that host",
					secret.id, secret.Path, secret.Line, id, why)
				return
			}
			r.field(m, field, "caBundle does not make tls.crt of %s (%s:%d) trusted, "+effect+
				"%s (%s): change both together", secret.id, secret.Path, secret.Line, id, why)
		}
	}
}

// whyUntrusted returns the reason why a client with some authorities trusts no certificate that the pods of a Service
// mount, and the Secret with the last one.
func (s *subject) whyUntrusted(id kinds.ID, by *manifest, authorities *x509.CertPool) (last *manifest, why string) {
	service := s.present(id, by)
	if service == nil {
		return nil, ""
	}
	pods, _, _ := s.selected(service)
	for _, set := range pods {
		for _, reference := range set.by.references {
			secret := s.present(reference.To, by)
			if secret == nil || !slices.Contains(reference.Path, "volumes") || len(secret.certificates()) == 0 {
				continue
			}
			if why = whyRefused(secret, id.Name+"."+id.Namespace+".svc", authorities); why == "" {
				return nil, ""
			}
			last = secret
		}
	}
	return last, why
}

// A credential is a value in PEM of a ConfigMap or a Secret.
type credential struct {
	by        *manifest
	key, text string
}

// credentials returns the values in PEM of a payload, without those that clusters have made.
func (ix *index) credentials() (found []credential) {
	for _, m := range slices.Concat(ix.byKind[kinds.ConfigMap], ix.byKind[kinds.Secret]) {
		for _, key := range m.keys() {
			text, _ := m.value(key)
			if strings.Contains(text, beginPEM) && !m.isTombstone && !m.IsCreateOnly() {
				found = append(found, credential{m, key, text})
			}
		}
	}
	return found
}

// isVerifiedBy reports whether another value has the authority of a certificate, or the public key of a private key.
func (c credential) isVerifiedBy(other credential) bool {
	isSecret, pool := c.by.groupKind() == kinds.Secret, x509.NewCertPool()
	switch {
	case !isSecret || c.by == other.by && c.key == other.key:
		return false
	case c.key == corev1.TLSCertKey:
		return len(c.by.certificates()) > 0 && pool.AppendCertsFromPEM([]byte(other.text)) &&
			whyRefused(c.by, "", pool) == ""
	}
	key, _ := keyutil.ParsePrivateKeyPEM([]byte(c.text))
	signer, isKey := key.(interface{ Public() crypto.PublicKey })
	if !isKey || !strings.Contains(other.text, "PUBLIC KEY-----") {
		return false
	}
	public, _ := keyutil.ParsePublicKeysPEM([]byte(other.text))
	return slices.ContainsFunc(public, func(k any) bool { return reflect.DeepEqual(k, signer.Public()) })
}

// checkParted looks for a certificate and its authority, or a private key and its public key, of which one has changed
// without the other.
func checkParted(s *subject, r *reporter) {
	had, has := s.previous.credentials(), s.credentials()
	find := func(c credential) int {
		return slices.IndexFunc(has, func(d credential) bool {
			return c.by.id == d.by.id && c.key == d.key && s.shareCluster(c.by, d.by)
		})
	}
	for _, old := range had {
		with := slices.IndexFunc(had, old.isVerifiedBy)
		if with < 0 {
			continue
		}
		i, j := find(old), find(had[with])
		if i < 0 || j < 0 || slices.ContainsFunc(has, has[i].isVerifiedBy) ||
			(has[i].text != old.text) == (has[j].text != had[with].text) {
			continue
		}
		changed, kept := has[i], has[j]
		if changed.text == old.text {
			changed, kept = kept, changed
		}
		r.field(changed.by, []string{changed.by.dataField(changed.key), changed.key}, "%s no longer fits %s of %s "+
			"(%s), as it did in the previous payload, so programs with the one refuse the other: change both together",
			changed.key, kept.key, kept.by.id, kept.by.place())
	}
}
