// Jobs of the ml v1 API. `Api` is global.

declare namespace Api {
  interface ReplicaConfig {
    imageUri?: string;
    containerCommand?: string[];
    containerArgs?: string[];
    acceleratorConfig?: { count?: string; type?: string };
  }

  interface TrainingInput {
    args?: string[];
    evaluatorConfig?: ReplicaConfig;
    evaluatorCount?: string;
    evaluatorType?: string;
    hyperparameters?: Hyperparameters;
    jobDir?: string;
    masterConfig?: ReplicaConfig;
    masterType?: string;
    packageUris?: string[];
    parameterServerConfig?: ReplicaConfig;
    parameterServerCount?: string;
    parameterServerType?: string;
    pythonModule?: string;
    pythonVersion?: string;
    region?: string;
    runtimeVersion?: string;
    scaleTier?: string;
    scheduling?: { maxRunningTime?: string; priority?: number };
    useChiefInTfConfig?: boolean;
    workerConfig?: ReplicaConfig;
    workerCount?: string;
    workerType?: string;
  }

  /** What a tuning job searches for. Other fields are kept as they are. */
  interface Hyperparameters {
    maxTrials?: number;
    maxParallelTrials?: number;
    resumePreviousJobId?: string;
    [field: string]: unknown;
  }

  interface PredictionInput {
    batchSize?: string;
    dataFormat?: string;
    inputPaths?: string[];
    maxWorkerCount?: string;
    modelName?: string;
    outputDataFormat?: string;
    outputPath?: string;
    region?: string;
    runtimeVersion?: string;
    signatureName?: string;
    uri?: string;
    versionName?: string;
  }

  /** A job as a client writes it. It has one of the inputs. */
  interface JobRequest {
    jobId: string;
    labels?: Labels;
    trainingInput?: TrainingInput;
    predictionInput?: PredictionInput;
  }

  interface Job extends JobRequest {
    state: JobState;
    createTime: string;
    startTime?: string;
    endTime?: string;
    errorMessage?: string;
    etag: string;
    jobPosition?: string;
    trainingOutput?: { trials?: { trialId: string; finalMetric?: { objectiveValue: number } }[] };
    predictionOutput?: { outputPath: string; predictionCount: string; errorCount: string; nodeHours: number };
  }
}
