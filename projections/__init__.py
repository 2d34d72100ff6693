"""What has happened: the fold from log records to views, and the views' storage, rebuild and verify.

The basics: a projection is a sorted map from keys to rows, one for each partition (`layout` says
which keys there are, `rows` what they hold). `fold` is pure and is the only code that changes one,
live and in a rebuild alike. `position_rule` decides which of the records that a log holds count.

The caveats: everything here can be thrown away, so nothing here may be the only place of a fact. No
payload, label, reason or checkpoint is kept in a projection, only positions; who reads them opens the log.
"""
