package lint

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

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
	case !m.isPair():
		return corev1.TLSPrivateKeyKey, "is not the key of the first certificate in tls.crt, so no server can use " +
			"them: replace both at once, and put the certificate of the server first"
	case now.After(chain[0].NotAfter):
		return corev1.TLSCertKey, "expired on " + chain[0].NotAfter.Format(time.DateOnly) +
			", so clients refuse it: renew it"
	case now.Before(chain[0].NotBefore):
		return corev1.TLSCertKey, "is not valid before " + chain[0].NotBefore.Format(time.DateOnly) +
			", so clients refuse it: issue it anew"
	case old != nil && len(chain) == 1 && old.hasIssuerOf(chain[0]):
		return corev1.TLSCertKey, "no longer has the certificate of its issuer, as in the previous payload, so " +
			"clients do not trust it: append it"
	default:
		return "", ""
	}
}

// hasIssuerOf reports whether a Secret also has the certificate of the issuer that clients do not have: not a root.
func (m *manifest) hasIssuerOf(certificate *x509.Certificate) bool {
	chain := m.certificates()
	return len(chain) > 1 && certificate.CheckSignatureFrom(chain[1]) == nil &&
		chain[1].CheckSignatureFrom(chain[1]) != nil
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
	authorities, trusted, old := x509.NewCertPool(), parseCertificates(string(bundle)), s.previousOf(m)
	for _, authority := range trusted {
		authorities.AddCert(authority)
	}
	switch {
	case len(trusted) == 0 && old != nil && fieldAt(old.Object().Object, field) == encoded: // others replace it
	case len(trusted) == 0:
		r.field(m, field, "caBundle has no certificate in PEM, so the API server can't call %s", id)
	case !slices.ContainsFunc(trusted, func(c *x509.Certificate) bool { return time.Now().Before(c.NotAfter) }):
		r.field(m, field, "caBundle expired on %s, so the API server can't call %s: renew it",
			trusted[0].NotAfter.Format(time.DateOnly), id)
	default:
		if secret, why := s.whyUntrusted(id, m, authorities); why != "" {
			r.field(m, field, "with this caBundle, the API server does not trust tls.crt of %s (%s:%d), so it can't "+
				"call %s (%s): change both together", secret.id, secret.Path, secret.Line, id, why)
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

// authorityOf returns the ConfigMap or Secret of a payload with an authority of a certificate, and its key; nil if no
// object has it.
func (ix *index) authorityOf(secret *manifest) (by *manifest, key string) {
	for _, m := range slices.Concat(ix.byKind[kinds.ConfigMap], ix.byKind[kinds.Secret]) {
		for _, key := range m.keys() {
			text, _ := m.value(key)
			pool, isOther := x509.NewCertPool(), m != secret || key != corev1.TLSCertKey
			if isOther && !m.isTombstone && !m.IsCreateOnly() && pool.AppendCertsFromPEM([]byte(text)) &&
				whyRefused(secret, "", pool) == "" {
				return m, key
			}
		}
	}
	return nil, ""
}

// checkParted looks for a certificate and its authority of which one has changed without the other.
func checkParted(s *subject, r *reporter) {
	for _, m := range s.byKind[kinds.Secret] {
		old := s.previousOf(m)
		if old == nil || m.isTombstone || m.IsCreateOnly() || len(m.certificates()) == 0 ||
			len(old.certificates()) == 0 {
			continue
		}
		before, key := s.previous.authorityOf(old)
		if now, _ := s.authorityOf(m); before == nil || now != nil {
			continue
		}
		if authority := s.present(before.id, m); authority != nil && authority.hasKey(key) {
			r.field(m, []string{m.dataField(corev1.TLSCertKey), corev1.TLSCertKey}, "tls.crt no longer fits %s of %s "+
				"(%s), as it did in the previous payload, so programs that trust that refuse it: change both together",
				key, authority.id, authority.place())
		}
	}
}
