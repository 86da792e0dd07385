module quire.example/stream

go 1.20
