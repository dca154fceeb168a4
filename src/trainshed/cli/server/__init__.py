"""`trainshed up`, `status`, `down`, `config`, `auth`, `console` and `runtimes`."""
