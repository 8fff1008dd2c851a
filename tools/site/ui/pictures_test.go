package ui

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "write the pictures of docs/ui.md")

// webshop is the release of the pictures. They are taken while its update waits for an image, and a finalizer
// holds a deleted ConfigMap.
const webshop = `
-- 0000_10_base_00_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
-- 0000_10_base_10_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {version: VERSION}}
-- 0000_20_legacy-search_10_settings.yaml --
apiVersion: v1
kind: ConfigMap
metadata:
  name: legacy-search
  namespace: NS
  finalizers: [backup.example.com/archive]
  annotations: {TOMBSTONE}
-- 0000_40_payments_20_service.yaml --
{apiVersion: v1, kind: Service, metadata: {name: payments, namespace: NS}, spec: {ports: [{port: 80}]}}
`

// picturedParts are the Deployments of the webshop, with their levels.
var picturedParts = map[string]string{"cart": "40", "catalog": "40", "payments": "40", "queue": "20", "search": "40",
	"frontend": "50", "admin": "50"}

// takePictures takes the pictures of docs/ui.md: the graph in light, the table on a phone, and an object in dark.
func (s *stage) takePictures(t *testing.T) {
	r := release{"webshop", strings.Replace(webshop, "TOMBSTONE", "", 1)}
	for part, level := range picturedParts {
		r.files += "-- 0000_" + level + "_" + part + `_10_deployment.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: ` + part + `, namespace: NS}
spec:
  selector: {matchLabels: {app: ` + part + `}}
  template:
    metadata: {labels: {app: ` + part + `}}
    spec: {containers: [{name: main, image: "registry.example/webshop/` + part + `:VERSION"}]}
`
	}
	s.apply(t, r, "1.4.0")
	r.files = strings.Replace(r.files, "annotations: {}", "annotations: {"+tombstone+"}", 1)
	r.files = strings.Replace(r.files, "labels: {app: search}}",
		"labels: {app: search}, annotations: {sandbox.runlevel.dev/pod: image-pull}}", 1)
	s.start(t, r, "1.5.0")
	s.open(t, r.path(""))
	s.sees(t, "Level 10.*\n[^]*done[^]*Level 40\n[^]*waiting[^]*Level 50\n[^]*later")
	for _, picture := range []struct {
		name, theme, path string
		width, height     int64
	}{
		{"ui-update", "light", "", 1200, 1400},
		{"ui-phone", "light", "#graph", 390, 844},
		{"ui-object", "dark", "/object?kind=Deployment.apps&name=search&namespace=webshop", 1200, 900},
	} {
		s.SetTheme(t, picture.theme)
		s.Do(t, chromedp.EmulateViewport(picture.width, picture.height), chromedp.Navigate(s.site+r.path(picture.path)))
		image, err := chromedp.Call(s, page.CaptureScreenshot, page.CaptureScreenshotParams{
			Format: page.CaptureScreenshotFormatWebp, Quality: new(int64(80))})
		if err != nil {
			t.Fatal(err)
		}
		file := "../../../docs/" + picture.name + ".webp"
		if *update {
			if err := os.WriteFile(file, image.Data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if info, err := os.Stat(file); err != nil || info.Size() > 150<<10 || len(image.Data) < 5<<10 {
			t.Errorf("%s: %v, or more than 150 kB, or the new picture is empty (-update writes it)", file, err)
		}
	}
}
