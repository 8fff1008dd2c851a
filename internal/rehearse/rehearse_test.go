package rehearse_test

import "flag"

var update = flag.Bool("update", false, "write what rehearsals find")
