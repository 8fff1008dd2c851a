module github.com/runlevel/runlevel/tools/release

go 1.26.0

require golang.org/x/mod v0.41.0

require github.com/runlevel/runlevel v0.0.0

require (
	github.com/gofrs/flock v0.13.1 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/tools v0.51.0 // indirect
)

replace github.com/runlevel/runlevel => ../..
