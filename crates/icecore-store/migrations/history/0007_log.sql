-- One memory's part of the log, without a walk through its tenant's whole log.
CREATE INDEX log_by_scope ON log (tenant, scope, position);
