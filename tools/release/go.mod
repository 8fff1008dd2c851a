module github.com/runlevel/runlevel/tools/release

go 1.26.0

require golang.org/x/mod v0.41.0

require (
	github.com/runlevel/runlevel v0.0.0
	github.com/xeipuuv/gojsonschema v1.2.0
	sigs.k8s.io/yaml v1.6.0
)

require (
	github.com/xeipuuv/gojsonpointer v0.0.0-20180127040702-4e3ac2762d5f // indirect
	github.com/xeipuuv/gojsonreference v0.0.0-20180127040603-bd5ef7bd5415 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
)

require (
	github.com/gofrs/flock v0.13.1 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/tools v0.51.0 // indirect
)

replace github.com/runlevel/runlevel => ../..
